"""Products with matrices in the activations' format."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.blas import blas, can_use_blas
from pagoda.ops.cuda.epilogue import Epilogue
from pagoda.ops.cuda.gemv import gemv
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.tiled import tiled
from pagoda.ops.cuda.tuning import Tiling, choose
from pagoda.ops.cuda.weights import DenseMatrix


def dense_product(x: torch.Tensor, matrix: DenseMatrix, epilogue: Epilogue, machine: Machine) -> None:
    """epilogue.out [T, n] = x [T, k] × the matrix's transpose, and what `epilogue` says."""
    tiling = choose(
        matrix.shape,
        x.shape[0],
        machine,
        is_gated=epilogue.gate is not None,
        can_use_blas=can_use_blas(x, epilogue),
    )
    multiply(x, matrix.values, epilogue, machine, tiling)


def multiply(x: torch.Tensor, values: torch.Tensor, epilogue: Epilogue, machine: Machine, tiling: Tiling) -> None:
    """The same by this kernel, in these tiles. values [n or 2n, k]."""
    if tiling.kernel == "gemv":
        gemv(x, values, epilogue, machine, tiling)
    elif tiling.kernel == "tiled":
        tiled(x, values, epilogue, machine, tiling)
    else:
        blas(x, values, epilogue, machine)


def num_tiles(matrix: DenseMatrix, rows: int, machine: Machine) -> int:
    """Tiles of outputs of a product of so many rows with it that a residual stream takes in."""
    return -(-matrix.shape[0] // choose(matrix.shape, rows, machine).outputs)
