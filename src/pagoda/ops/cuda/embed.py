"""Rows of a table."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.packed_embed import embed_packed
from pagoda.ops.cuda.tiles import part_of_rows, places
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix


def embed(rows: torch.Tensor, table: CudaWeight, scale: float, out: torch.Tensor) -> None:
    """out [T, n] = the table's rows [T] × scale."""
    (matrix,) = table.matrices
    if not isinstance(matrix, DenseMatrix):
        embed_packed(rows, matrix, scale, out)
        return
    _embed_dense(rows, matrix.values, scale, out)


def _embed_dense(ids: torch.Tensor, values: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    (num_rows, width), tile = out.shape, part_of_rows(out.shape[1])
    _dense_rows[tile.grid(num_rows, width)](
        ids, values, float(scale), out, num_rows, width, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps
    )


@triton.jit(do_not_specialize=["num_rows"])
def _dense_rows(ids, values, scale, out, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    sources = tl.load(ids + rows, rows < num_rows, other=0).to(tl.int64)
    wide = tl.load(values + sources * width + columns, inside).to(tl.float32)
    tl.store(out + rows * width + columns, wide * scale, inside)
