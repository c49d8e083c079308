"""One row of activations times a matrix that is kept quantized: sums of code × activation first, then their scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.epilogue import Epilogue, finish
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.packed_tiles import (
    codes_of,
    inputs_of,
    inputs_of_scale,
    lanes_of,
    load_units,
    parts_of,
    parts_of_scale,
    place_of,
    row_scales_of,
    scales_of,
    shifts_of,
)
from pagoda.ops.cuda.weights import PackedMatrix

WARP = 32
MOST_WARPS = 4


@dataclass(frozen=True, slots=True)
class GemvTile:
    """Outputs of a program. Each thread has one unit of each of them at a time, so that its activations, once in registers,
    meet them all, and tensors of all kinds are spread over threads alike: none has to be moved between them.
    """

    outputs: int
    num_warps: int

    @property
    def units(self) -> int:
        return self.num_warps * WARP


def gemv_tile(matrix: PackedMatrix, machine: Machine, *, is_gated: bool = False) -> GemvTile:
    """Several outputs share the activations that a program reads, as far as there are programs enough to fill the GPU, and
    registers."""
    is_simple = not is_gated and matrix.high is None and matrix.super_scales is None
    outputs = 8 if is_simple and matrix.shape[0] // 8 >= 4 * machine.multiprocessors else 4
    return GemvTile(outputs, min(MOST_WARPS, triton.next_power_of_2(triton.cdiv(matrix.num_units, WARP))))


def packed_gemv(x: torch.Tensor, matrix: PackedMatrix, epilogue: Epilogue, machine: Machine) -> None:
    """epilogue.out [1, n] = x [1, k] × the matrix's transpose, and what `epilogue` says."""
    num_outputs = epilogue.out.shape[1]
    tile = gemv_tile(matrix, machine, is_gated=epilogue.gate is not None)
    _gemv[(triton.cdiv(num_outputs, tile.outputs),)](
        x,
        num_outputs,
        matrix.num_units,
        **matrix.arguments(),
        **epilogue.arguments(),
        HAS_FP8=machine.has_e4m3,
        BN=tile.outputs,
        BU=tile.units,
        num_warps=tile.num_warps,
    )


@triton.jit(do_not_specialize=["norm_columns"])
def _gemv(
    x_ptr,
    num_outputs,
    num_units,
    codes_ptr,
    high_ptr,
    scales_ptr,
    mins_ptr,
    super_scales_ptr,
    super_mins_ptr,
    exponent,
    out_ptr,
    out_stride,
    bias_ptr,
    stream_ptr,
    gain_ptr,
    scaled_ptr,
    sums_ptr,
    sums_stride,
    norm_ptr,
    norm_stride,
    norm_columns,
    norm_size,
    norm_eps,
    GATE: tl.constexpr,
    FORMAT: tl.constexpr,
    HAS_FP8: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
):
    planes = (codes_ptr, high_ptr, scales_ptr, mins_ptr, super_scales_ptr, super_mins_ptr, exponent)
    tile = tl.program_id(0)
    columns = tile * BN + tl.arange(0, BN)
    is_output = columns < num_outputs
    first = tl.zeros([BN, BU], tl.float32)
    second = tl.zeros([BN, BU], tl.float32)
    for start in range(0, num_units, BU):
        first += _given(x_ptr, planes, columns, is_output, start, num_units, BU, FORMAT, HAS_FP8)
        if GATE != "":
            second += _given(x_ptr, planes, columns + num_outputs, is_output, start, num_units, BU, FORMAT, HAS_FP8)
    first_sum = _total(first, planes, columns, is_output, FORMAT)
    second_sum = first_sum if GATE == "" else _total(second, planes, columns + num_outputs, is_output, FORMAT)
    finish(
        first_sum,
        second_sum,
        tl.arange(0, 1),
        columns,
        tile,
        1,
        num_outputs,
        out_ptr,
        out_stride,
        bias_ptr,
        stream_ptr,
        gain_ptr,
        scaled_ptr,
        sums_ptr,
        sums_stride,
        norm_ptr,
        norm_stride,
        norm_columns,
        norm_size,
        norm_eps,
        GATE,
        1,
    )


@triton.jit
def _given(
    x_ptr,
    planes,
    outputs,
    is_output,
    start,
    num_units,
    BU: tl.constexpr,
    FORMAT: tl.constexpr,
    HAS_FP8: tl.constexpr,
):
    """What each of the BU units from `start` on adds to these outputs [BN]: [BN, BU], unscaled yet where a row has one scale.

    Σ (scale × code − shift) × x = scale × Σ code × x − shift × Σ x, over inputs that have one scale and one shift.
    """
    PARTS: tl.constexpr = parts_of(FORMAT)
    LANES: tl.constexpr = lanes_of(FORMAT)
    BN: tl.constexpr = outputs.shape[0]
    units = start + tl.arange(0, BU)
    inside = is_output[:, None] & (units < num_units)[None, :]
    words, high = load_units(planes, outputs, is_output, start, num_units, BU, FORMAT)
    given = tl.zeros([BN, BU], tl.float32)
    products = tl.zeros([BN, BU, LANES], tl.float32)
    sums = tl.zeros([1, BU, LANES], tl.float32)
    for part in tl.static_range(PARTS):
        inputs = inputs_of(start, part, BU, FORMAT)[None, :]
        x = tl.load(x_ptr + inputs, mask=inputs < num_units * (PARTS * LANES), other=0.0)
        x = tl.reshape(x.to(tl.float32), [1, BU, LANES])
        if planes[3] is not None:
            sums += x
        codes = codes_of(words, high, planes[6], part, FORMAT, HAS_FP8)
        products += codes * (x * 0.5 ** place_of(FORMAT, part))
        if inputs_of_scale(FORMAT) != 0 and part % parts_of_scale(FORMAT) == parts_of_scale(FORMAT) - 1:
            given += tl.sum(products, 2) * scales_of(planes, outputs, units, num_units, inside, part, FORMAT)
            products = tl.zeros([BN, BU, LANES], tl.float32)
    if planes[3] is not None:
        given -= tl.sum(sums, 2) * shifts_of(planes, outputs, units, num_units, inside, FORMAT)
    return given + tl.sum(products, 2)


@triton.jit
def _total(given, planes, outputs, is_output, FORMAT: tl.constexpr):
    """Sums [1, BN] over units of what they gave [BN, BU]."""
    total = tl.sum(given, 1)
    if inputs_of_scale(FORMAT) == 0:
        total *= row_scales_of(planes, outputs, is_output)
    return total[None, :]
