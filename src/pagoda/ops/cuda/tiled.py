"""Rows times a matrix in tiles, on tensor cores: for few rows, where all programs together read the weights once; for any
number of rows where each row's result must not depend on the others; and where outputs are of another format than inputs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from pagoda.ops.cuda.epilogue import Epilogue, finish
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.split import combined
from pagoda.ops.cuda.tuning import Tiling

# Tiles of rows that are under way at once, so that neighbours find each other's weights and inputs in the L2 cache.
GROUP = 16


def tiled(x: torch.Tensor, values: torch.Tensor, epilogue: Epilogue, machine: Machine, tiling: Tiling) -> None:
    """epilogue.out [T, n] = x [T, k] × the transpose of values [n or 2n, k], and what the epilogue says.

    Each output is the sum of `dot`s over tiling.inputs of the inputs at a time, in order, of each split, and of the splits'
    sums in order; whatever T is.
    """
    (num_rows, num_outputs), num_inputs = epilogue.out.shape, values.shape[1]
    row_tiles, output_tiles = triton.cdiv(num_rows, tiling.rows), triton.cdiv(num_outputs, tiling.outputs)
    descriptor = None
    if tiling.by_descriptor and can_describe(values):
        descriptor = TensorDescriptor.from_tensor(values, [tiling.outputs, tiling.inputs])
    _tiled[(row_tiles * output_tiles, tiling.splits)](
        x,
        x.stride(0),
        values,
        descriptor,
        machine.partials,
        machine.counters,
        num_rows=num_rows,
        num_outputs=num_outputs,
        num_inputs=num_inputs,
        splits=tiling.splits,
        **epilogue.arguments(),
        BM=tiling.rows,
        BN=tiling.outputs,
        BK=tiling.inputs,
        STAGES=tiling.num_stages,
        IS_SPLIT=tiling.splits > 1,
        GROUP_ROWS=1 if row_tiles == 1 else GROUP,
        num_warps=tiling.num_warps,
    )


def can_describe(values: torch.Tensor) -> bool:
    """Whether the GPU's unit that copies tiles (TMA, from capability 9.0 on) can fetch from it: rows begin at 16 bytes."""
    return values.data_ptr() % 16 == 0 and values.stride(0) * values.itemsize % 16 == 0


@triton.jit(do_not_specialize=["num_rows", "splits", "norm_columns"])
def _tiled(
    x_ptr,
    x_stride,
    values_ptr,
    values_descriptor,
    partials_ptr,
    counters_ptr,
    num_rows,
    num_outputs,
    num_inputs,
    splits,
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
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
):
    # Weights that one tile of rows reads are not read again.
    EVICTION: tl.constexpr = "evict_first" if GROUP_ROWS == 1 else ""
    tile, split = tl.program_id(0), tl.program_id(1)
    row_tiles, output_tiles = (num_rows + BM - 1) // BM, (num_outputs + BN - 1) // BN
    in_group = tile % (GROUP_ROWS * output_tiles)
    first_of_group = tile // (GROUP_ROWS * output_tiles) * GROUP_ROWS
    group = tl.minimum(row_tiles - first_of_group, GROUP_ROWS)
    output_tile = in_group // group
    rows = (first_of_group + in_group % group) * BM + tl.arange(0, BM)
    columns = output_tile * BN + tl.arange(0, BN)

    # Outputs that are not there read the last one's weights, and are not stored.
    weights_ptr = values_ptr + tl.minimum(columns, num_outputs - 1)[:, None].to(tl.int64) * num_inputs
    others_ptr = weights_ptr + tl.cast(num_outputs, tl.int64) * num_inputs
    x_ptr += rows[None, :].to(tl.int64) * x_stride
    is_row = rows[None, :] < num_rows
    # Outputs by rows, not rows by outputs: tensor cores want 64 of the former and are content with few of the latter.
    first = tl.zeros([BN, BM], tl.float32)
    second = tl.zeros([BN, BM], tl.float32)
    steps = (num_inputs + BK - 1) // BK
    for step in tl.range(steps * split // splits, steps * (split + 1) // splits, num_stages=STAGES):
        inputs = step * BK + tl.arange(0, BK)
        across, down = inputs[None, :], inputs[:, None]
        if values_descriptor is not None:
            weights = values_descriptor.load([output_tile * BN, step * BK])
        else:
            weights = tl.load(weights_ptr + across, mask=across < num_inputs, other=0.0, eviction_policy=EVICTION)
        x = tl.load(x_ptr + down, mask=is_row & (down < num_inputs), other=0.0)
        first = tl.dot(weights, x, first, input_precision="ieee")
        if GATE != "":
            if values_descriptor is not None:
                others = values_descriptor.load([num_outputs + output_tile * BN, step * BK])
            else:
                others = tl.load(others_ptr + across, mask=across < num_inputs, other=0.0, eviction_policy=EVICTION)
            second = tl.dot(others, x, second, input_precision="ieee")
    if IS_SPLIT:
        first, second, is_last = combined(
            first, second, partials_ptr, counters_ptr, tile, tl.num_programs(0), split, splits, GATE != ""
        )
        num_rows = tl.where(is_last, num_rows, 0)
    finish(
        first,
        second,
        rows,
        columns,
        output_tile,
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
