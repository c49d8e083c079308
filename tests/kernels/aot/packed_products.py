"""Tiles of quantized matrices: the largest, those of few rows, and the fixed ones, each as the launcher would choose it."""

from __future__ import annotations

from typing import Any

import torch

from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.packed_formats import allocate
from pagoda.ops.cuda.packed_products import FEW_ROWS, _gemm, num_stages, tile_for
from pagoda.ops.cuda.packed_tiles import has_bytes
from tests.kernels.packed_types import META, epilogue, planes
from tests.kernels.triton_aot import ARCHITECTURES, Variant, variant


def _each(
    label: str, name: str, rows: int, dtype: torch.dtype = torch.bfloat16, most_spilled: int = 0, **more: Any
) -> list[Variant]:
    """On each architecture as its launcher has it. The label "fixed" is of deterministic ones."""
    return [
        _one(label, name, rows, dtype, architecture, most_spilled=most_spilled, **more)
        for architecture in ARCHITECTURES
    ]


def _one(
    label: str, name: str, rows: int, dtype: torch.dtype, architecture: int, *, most_spilled: int, **more: Any
) -> Variant:
    capability, is_gated = divmod(architecture, 10), "gate" in more
    machine = Machine(META, dtype, 132, capability, torch.empty(0), torch.empty(0), "fixed" in label)
    matrix = allocate(name, (32768, 4096), META)
    tile = tile_for(rows, matrix, machine, is_gated=is_gated)
    stages = num_stages(tile, dtype.itemsize, matrix, machine, is_gated=is_gated)
    return variant(
        _gemm,
        f"{name}, {label}",
        x_ptr="*fp32" if dtype == torch.float32 else "*bf16",
        x_stride="i32:16",
        partials_ptr="*fp32",
        counters_ptr="*i32",
        num_rows="i32",
        splits="i32",
        num_outputs="i32:16",
        num_units="i32:16",
        **planes(name),
        **epilogue(**more),
        HAS_FP8=machine.has_e4m3,
        BM=tile.rows,
        BN=tile.outputs,
        BU=tile.code_bytes // (8 if has_bytes(name) else 16),
        STAGES=stages,
        num_stages=stages,
        num_warps=tile.num_warps,
        IS_SPLIT=1 < rows <= FEW_ROWS and not machine.is_deterministic,
        architectures=(architecture,),
        most_spilled=most_spilled,
    )


VARIANTS = [
    *_each("many rows", "Q4_K", 2048),
    *_each("many rows, gated", "fp8", 256, gate="silu"),
    *_each("16 rows after a norm", "Q8_0", 16, has_norm=True),
    *_each("64 rows, gated", "Q6_K", 64, most_spilled=16, gate="silu"),
    *_each("fixed, residual", "int4", 7, is_residual=True),
    *_each("float32", "int8", 7, torch.float32),
]
