"""Rows of a table that is kept quantized."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.packed_tiles import lanes_of, load_units, numbers_of, parts_of
from pagoda.ops.cuda.weights import PackedMatrix

# Units of a row that a program takes at once.
UNITS = 64


def embed_packed(ids: torch.Tensor, matrix: PackedMatrix, scale: float, out: torch.Tensor) -> None:
    """out [T, n] = the table's rows ids [T] × scale, in any number format."""
    num_units = matrix.num_units
    block = min(UNITS, triton.next_power_of_2(num_units))
    _rows[(len(ids), triton.cdiv(num_units, block))](
        ids, out, out.stride(0), float(scale), num_units, **matrix.arguments(), BLOCK=block, num_warps=2
    )


@triton.jit
def _rows(
    ids_ptr,
    out_ptr,
    out_stride,
    scale,
    num_units,
    codes_ptr,
    high_ptr,
    scales_ptr,
    mins_ptr,
    super_scales_ptr,
    super_mins_ptr,
    exponent,
    FORMAT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    PARTS: tl.constexpr = parts_of(FORMAT)
    LANES: tl.constexpr = lanes_of(FORMAT)
    planes = (codes_ptr, high_ptr, scales_ptr, mins_ptr, super_scales_ptr, super_mins_ptr, exponent)
    token = tl.program_id(0)
    row = tl.load(ids_ptr + token + tl.arange(0, 1))
    start = tl.program_id(1) * BLOCK
    units = start + tl.arange(0, BLOCK)
    inside = (units < num_units)[None, :]
    is_row = row >= 0
    words, high = load_units(planes, row, is_row, start, num_units, BLOCK, FORMAT)
    for part in tl.static_range(PARTS):
        # E4M3 by its bits: a conversion of the GPU's own is not worth a kernel of its own here.
        numbers = numbers_of(words, high, planes, row, is_row, units, num_units, part, FORMAT, False)
        columns = (units * PARTS + part)[None, :, None] * LANES + tl.arange(0, LANES)[None, None, :]
        at = token.to(tl.int64) * out_stride + columns
        tl.store(out_ptr + at, (numbers * scale).to(out_ptr.dtype.element_ty), mask=inside[:, :, None])
