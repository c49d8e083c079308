"""One row times quantized matrices: formats of each kind, and the epilogues of a layer's products."""

from __future__ import annotations

from typing import Any

import torch

from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.packed_formats import allocate
from pagoda.ops.cuda.packed_gemv import _gemv, gemv_tile
from tests.kernels.packed_types import META, epilogue, planes
from tests.kernels.triton_aot import Variant, variant

MACHINE = Machine(META, torch.bfloat16, 132, (9, 0), torch.empty(0), torch.empty(0))


def _one(label: str, name: str, *, has_fp8: bool = True, **more: Any) -> Variant:
    tile = gemv_tile(allocate(name, (11008, 4096), META), MACHINE, is_gated="gate" in more)
    return variant(
        _gemv,
        f"{name}, {label}",
        x_ptr="*bf16",
        num_outputs="i32:16",
        num_units="i32:16",
        **planes(name),
        **epilogue(**more),
        HAS_FP8=has_fp8,
        BN=tile.outputs,
        BU=tile.units,
        num_warps=tile.num_warps,
        architectures=(89, 90) if has_fp8 and name.startswith("fp8") else (80, 89, 90),
    )


VARIANTS = [
    *(_one("plain", name) for name in ("Q5_K", "Q8_0", "fp8_block")),
    *(_one("gated after a norm", name, gate="silu", has_norm=True) for name in ("Q6_K", "int4", "fp8")),
    _one("residual", "Q4_1", is_residual=True),
    _one("without conversions", "fp8", has_fp8=False),
]
