"""Rows of a table."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix


def embed(rows: torch.Tensor, table: CudaWeight, scale: float, out: torch.Tensor) -> None:
    """out [T, n] = the table's rows [T] × scale."""
    (matrix,) = table.matrices
    assert isinstance(matrix, DenseMatrix)
    out.copy_(F.embedding(rows, matrix.values).float() * scale)
