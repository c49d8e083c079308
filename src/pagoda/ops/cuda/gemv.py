"""One row times a matrix: each program reads a few outputs' weights in long runs, and multiplies without tensor cores."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.epilogue import Epilogue, finish
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.split import combined
from pagoda.ops.cuda.tuning import Tiling


def gemv(x: torch.Tensor, values: torch.Tensor, epilogue: Epilogue, machine: Machine, tiling: Tiling) -> None:
    """epilogue.out [1, n] = x [1, k] × the transpose of values [n or 2n, k], and what the epilogue says."""
    num_outputs, num_inputs = epilogue.out.shape[1], values.shape[1]
    _gemv[(triton.cdiv(num_outputs, tiling.outputs), tiling.splits)](
        x,
        values,
        machine.partials,
        machine.counters,
        num_outputs=num_outputs,
        num_inputs=num_inputs,
        splits=tiling.splits,
        **epilogue.arguments(),
        BN=tiling.outputs,
        BK=tiling.inputs,
        STAGES=tiling.num_stages,
        IS_SPLIT=tiling.splits > 1,
        num_warps=tiling.num_warps,
    )


@triton.jit(do_not_specialize=["splits", "norm_columns"])
def _gemv(
    x_ptr,
    values_ptr,
    partials_ptr,
    counters_ptr,
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
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    IS_SPLIT: tl.constexpr,
):
    tile, split = tl.program_id(0), tl.program_id(1)
    columns = tile * BN + tl.arange(0, BN)
    # Outputs that are not there read the last one's weights, and are not stored.
    weights_ptr = values_ptr + tl.minimum(columns, num_outputs - 1)[:, None].to(tl.int64) * num_inputs
    others_ptr = weights_ptr + tl.cast(num_outputs, tl.int64) * num_inputs
    first = tl.zeros([BN, BK], tl.float32)
    second = tl.zeros([BN, BK], tl.float32)
    steps = (num_inputs + BK - 1) // BK
    for step in tl.range(steps * split // splits, steps * (split + 1) // splits, num_stages=STAGES):
        inputs = step * BK + tl.arange(0, BK)
        is_input = inputs < num_inputs
        across, is_weight = inputs[None, :], is_input[None, :]
        weights = tl.load(weights_ptr + across, mask=is_weight, other=0.0, eviction_policy="evict_first")
        x = tl.load(x_ptr + inputs, mask=is_input, other=0.0).to(tl.float32)[None, :]
        first += weights.to(tl.float32) * x
        if GATE != "":
            others = tl.load(others_ptr + across, mask=is_weight, other=0.0, eviction_policy="evict_first")
            second += others.to(tl.float32) * x
    # As a row: as a column, each thread would load what `finish` needs once for each of the inputs that it has multiplied.
    first = tl.sum(first, 1)[None, :]
    second = tl.sum(second, 1)[None, :]
    num_rows = 1
    if IS_SPLIT:
        first, second, is_last = combined(
            first, second, partials_ptr, counters_ptr, tile, tl.num_programs(0), split, splits, GATE != ""
        )
        num_rows = tl.where(is_last, 1, 0)
    finish(
        first,
        second,
        tl.arange(0, 1),
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
        1,
    )
