"""Products with matrices that are kept quantized: their numbers are made in registers, never in memory.

One row takes a kernel of its own (`packed_gemv`), as tensor cores would be idle but for one column in eight; more rows take
matrix products whose loop makes each tile's numbers, rounded to the activations' format. `is_deterministic` takes the latter
for any number of rows, always with the same tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.epilogue import Epilogue, finish
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.packed_gemv import gemv_tile, packed_gemv
from pagoda.ops.cuda.packed_tiles import has_bytes, inputs_of, lanes_of, load_units, numbers_of, parts_of
from pagoda.ops.cuda.split import combined
from pagoda.ops.cuda.weights import PackedMatrix

# Shared memory that a program's tiles on their way may take, by capability ("CUDA C++ Programming Guide", technical
# specifications), with room for what else it needs.
SHARED_BYTES = {(9, 0): 200 << 10, (8, 0): 140 << 10}
LEAST_SHARED_BYTES = 84 << 10
MOST_STAGES = 4
# That a matrix product of tensor cores takes.
LEAST_INPUTS = 16
# Up to so many rows sums are split; in so many at most, of so many tiles of inputs at least.
FEW_ROWS = 64
MOST_SPLITS = 8
LEAST_STEPS = 2
PROGRAMS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and outputs of a program's tile; bytes of codes of each output that it takes at once."""

    rows: int
    outputs: int
    code_bytes: int
    num_warps: int


FIXED_TILE = Tile(64, 64, 128, num_warps=4)
# Tensor cores do not multiply float32 exactly: it is done by threads, whose registers hold less.
FLOAT32_TILE = Tile(32, 32, 32, num_warps=4)


def num_packed_tiles(matrix: PackedMatrix, rows: int, machine: Machine) -> int:
    """Tiles of outputs of a product of so many rows with it, without a gate: columns of `Residual.sums` that it writes."""
    tile = gemv_tile(matrix, machine) if _is_gemv(rows, machine) else tile_for(rows, matrix, machine)
    return -(-matrix.shape[0] // tile.outputs)


def packed_product(x: torch.Tensor, matrix: PackedMatrix, epilogue: Epilogue, machine: Machine) -> None:
    """epilogue.out [T, n] = x [T, k] × the matrix's transpose, and what `epilogue` says."""
    num_rows, num_outputs = epilogue.out.shape
    if _is_gemv(num_rows, machine):
        packed_gemv(x, matrix, epilogue, machine)
        return
    tile = tile_for(num_rows, matrix, machine, is_gated=epilogue.gate is not None)
    unit_bytes = matrix.codes.shape[1] * matrix.codes.itemsize // matrix.num_units
    units = min(tile.code_bytes // unit_bytes, triton.next_power_of_2(matrix.num_units))
    units = max(units, LEAST_INPUTS // lanes_of(matrix.format))
    row_tiles, output_tiles = triton.cdiv(num_rows, tile.rows), triton.cdiv(num_outputs, tile.outputs)
    splits = num_splits(num_rows, row_tiles * output_tiles, triton.cdiv(matrix.num_units, units), machine)
    _gemm[(output_tiles, row_tiles, splits)](
        x,
        x.stride(0),
        machine.partials,
        machine.counters,
        num_rows,
        num_outputs,
        matrix.num_units,
        splits,
        **matrix.arguments(),
        **epilogue.arguments(),
        HAS_FP8=machine.has_e4m3,
        BM=tile.rows,
        BN=tile.outputs,
        BU=units,
        STAGES=num_stages(tile, x.itemsize, matrix, machine, is_gated=epilogue.gate is not None),
        IS_SPLIT=splits > 1,
        num_warps=tile.num_warps,
    )


def _is_gemv(num_rows: int, machine: Machine) -> bool:
    return num_rows == 1 and not machine.is_deterministic


def tile_for(num_rows: int, matrix: PackedMatrix, machine: Machine, *, is_gated: bool = False) -> Tile:
    """With a gate a program has two tiles of sums."""
    if machine.dtype == torch.float32:
        return FLOAT32_TILE
    if machine.is_deterministic:
        return FIXED_TILE
    if num_rows > FEW_ROWS:
        return Tile(128, 64 if is_gated else 128, 64, num_warps=8)
    return Tile(max(16, triton.next_power_of_2(num_rows)), 32 if is_gated else 64, 128, num_warps=4)


def num_splits(num_rows: int, num_tiles: int, num_steps: int, machine: Machine) -> int:
    """How many programs share a tile's sum over inputs, of num_steps in all: with few rows what counts is that enough programs
    read the matrix at once."""
    if machine.is_deterministic or num_rows > FEW_ROWS:
        return 1
    return max(1, min(MOST_SPLITS, PROGRAMS_AT_ONCE * machine.multiprocessors // num_tiles, num_steps // LEAST_STEPS))


def num_stages(tile: Tile, element_bytes: int, matrix: PackedMatrix, machine: Machine, *, is_gated: bool) -> int:
    """How many tiles are on their way from memory, as many as shared memory has room for: of a GPU whose units wait less."""
    bits_of_an_input = 8 * (matrix.num_bytes // matrix.shape[0]) / matrix.shape[1]
    inputs = tile.code_bytes * 8 // (8 if has_bytes(matrix.format) else 4)
    taken = tile.rows * inputs * element_bytes
    taken += int(tile.outputs * inputs * bits_of_an_input / 8) * (2 if is_gated else 1)
    room = SHARED_BYTES.get(machine.capability, LEAST_SHARED_BYTES)
    return max(2, min(MOST_STAGES, room // taken))


@triton.jit(do_not_specialize=["num_rows", "splits", "norm_columns"])
def _gemm(
    x_ptr,
    x_stride,
    partials_ptr,
    counters_ptr,
    num_rows,
    num_outputs,
    num_units,
    splits,
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
    BM: tl.constexpr,
    BN: tl.constexpr,
    BU: tl.constexpr,
    STAGES: tl.constexpr,
    IS_SPLIT: tl.constexpr,
):
    PARTS: tl.constexpr = parts_of(FORMAT)
    LANES: tl.constexpr = lanes_of(FORMAT)
    planes = (codes_ptr, high_ptr, scales_ptr, mins_ptr, super_scales_ptr, super_mins_ptr, exponent)
    tile = tl.program_id(0)
    columns = tile * BN + tl.arange(0, BN)
    is_output = columns < num_outputs
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    # Outputs come first: numbers made in registers can be the left side of a matrix product.
    first = tl.zeros([BN, BM], tl.float32)
    second = tl.zeros([BN, BM], tl.float32)
    begin, end = 0, num_units
    if IS_SPLIT:
        share = tl.cdiv(tl.cdiv(num_units, BU), splits) * BU
        begin = tl.program_id(2) * share
        end = tl.minimum(begin + share, num_units)
    for start in tl.range(begin, end, BU, num_stages=STAGES):
        units = start + tl.arange(0, BU)
        words, high = load_units(planes, columns, is_output, start, num_units, BU, FORMAT)
        if GATE != "":
            others = columns + num_outputs
            more_words, more_high = load_units(planes, others, is_output, start, num_units, BU, FORMAT)
        for part in tl.static_range(PARTS):
            inputs = inputs_of(start, part, BU, FORMAT)
            x = tl.load(
                x_ptr + rows.to(tl.int64)[None, :] * x_stride + inputs[:, None],
                mask=(rows < num_rows)[None, :] & (inputs < num_units * (PARTS * LANES))[:, None],
                other=0.0,
            )
            numbers = numbers_of(words, high, planes, columns, is_output, units, num_units, part, FORMAT, HAS_FP8)
            side = tl.reshape(numbers.to(x.dtype), [BN, BU * LANES])
            first = tl.dot(side, x, first, input_precision="ieee")
            if GATE != "":
                numbers = numbers_of(
                    more_words,
                    more_high,
                    planes,
                    others,
                    is_output,
                    units,
                    num_units,
                    part,
                    FORMAT,
                    HAS_FP8,
                )
                side = tl.reshape(numbers.to(x.dtype), [BN, BU * LANES])
                second = tl.dot(side, x, second, input_precision="ieee")
    if IS_SPLIT:
        first, second, is_last = combined(
            first,
            second,
            partials_ptr,
            counters_ptr,
            tl.program_id(1) * tl.num_programs(0) + tile,
            tl.num_programs(0) * tl.num_programs(1),
            tl.program_id(2),
            splits,
            GATE != "",
        )
        num_rows = tl.where(is_last, num_rows, 0)  # the others store nothing
    finish(
        first,
        second,
        rows,
        columns,
        tile,
        num_rows,
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
        0,
    )
