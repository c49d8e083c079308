"""Products: a linear layer and what follows it in the same kernel."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.dense_products import dense_product, num_tiles
from pagoda.ops.cuda.epilogue import DeferredNorm, Epilogue, Residual
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.packed_products import num_packed_tiles, packed_product
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix
from pagoda.ops.interface import Activation


def num_sums(weight: CudaWeight, rows: int, machine: Machine) -> int:
    """Columns of `Residual.sums` that a product of so many rows with it writes: its tiles of outputs."""
    (matrix,) = weight.matrices
    if isinstance(matrix, DenseMatrix):
        return num_tiles(matrix, rows, machine)
    return num_packed_tiles(matrix, rows, machine)


def can_gate(weight: CudaWeight) -> bool:
    """Whether a product with it can apply a gate to its outputs' halves: both are of one format."""
    return len(weight.matrices) == 1


def can_join(weight: CudaWeight) -> bool:
    """Whether a product with it can take in the addition and the norm that follow."""
    return len(weight.matrices) == 1


def product(
    x: torch.Tensor,
    weight: CudaWeight,
    out: torch.Tensor,
    machine: Machine,
    *,
    gate: Activation | None = None,
    residual: Residual | None = None,
    norm: DeferredNorm | None = None,
) -> None:
    """out [T, n] = x [T, k] × the stacked matrices' transposes, plus their bias; then the row factor of `norm` (before the bias
    is added), then `gate` (out has half as many columns), or `residual`. Sums in float32. out may be float32 (logits).
    """
    first = 0
    for matrix in weight.matrices:
        last = first + matrix.shape[0]
        part = out if len(weight.matrices) == 1 else out[:, first:last]
        bias = None if weight.bias is None else weight.bias[first:last]
        epilogue = Epilogue(part, bias, gate, residual, norm)
        if isinstance(matrix, DenseMatrix):
            dense_product(x, matrix, epilogue, machine)
        else:
            packed_product(x, matrix, epilogue, machine)
        first = last
