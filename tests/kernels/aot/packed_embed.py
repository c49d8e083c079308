"""Rows of quantized tables."""

from __future__ import annotations

from pagoda.ops.cuda.packed_embed import UNITS, _rows
from tests.kernels.packed_types import planes
from tests.kernels.triton_aot import variant

VARIANTS = [
    variant(
        _rows,
        name,
        ids_ptr="*i32",
        out_ptr="*bf16",
        out_stride="i32:16",
        scale="fp32",
        num_units="i32:16",
        **planes(name),
        BLOCK=UNITS,
        num_warps=2,
    )
    for name in ("Q6_K", "Q8_0", "fp8_block")
]
