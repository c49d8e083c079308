"""Products: a linear layer and what follows it in the same kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops.cuda.epilogue import DeferredNorm, Residual
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix, Matrix
from pagoda.ops.interface import Activation


def num_sums(weight: CudaWeight, rows: int, machine: Machine) -> int:
    """Columns of `Residual.sums` that a product of so many rows with it writes: its tiles of outputs."""
    return 1


def can_gate(weight: CudaWeight) -> bool:
    """Whether a product with it can apply a gate to its outputs' halves: both are of one format."""
    return len(weight.matrices) == 1 and weight.bias is None


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
    wide = torch.cat([F.linear(x.float(), _dense(matrix)) for matrix in weight.matrices], dim=-1)
    if norm is not None:
        wide = wide * torch.rsqrt(norm.sums.sum(-1, keepdim=True) / norm.size + norm.eps)
    if weight.bias is not None:
        wide = wide + weight.bias
    if gate is not None:
        first, second = wide.chunk(2, dim=-1)
        wide = (F.silu(first) if gate == "silu" else F.gelu(first, approximate="tanh")) * second
    if residual is not None:
        wide = wide + residual.stream.float()
    out.copy_(wide)
    if residual is not None:
        kept = out.float()
        residual.scaled.copy_(kept * residual.gain)
        residual.sums[:, 0] = kept.square().sum(-1)


def _dense(matrix: Matrix) -> torch.Tensor:
    assert isinstance(matrix, DenseMatrix)
    return matrix.values.float()
