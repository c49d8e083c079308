"""Variants of norms."""

from typing import Any

from pagoda.ops.cuda.norm import _norm
from pagoda.ops.cuda.tiles import whole_rows
from tests.kernels.triton_aot import Variant, variant

NONE: dict[str, Any] = {"addend": None, "total": None, "bias": None}


def of(width: int, dtype: str, label: str, **given: Any) -> Variant:
    tile = whole_rows(width)
    arguments = {**NONE, "x": f"*{dtype}", "out": f"*{dtype}", "gain": "*fp32", "num_rows": "i32", "width": "i32:16"}
    arguments |= {"eps": "fp32", "ROWS": tile.rows, "COLUMNS": tile.columns, **given}
    return variant(_norm, f"{width} {dtype}, {label}", num_warps=tile.num_warps, **arguments)


VARIANTS = [
    of(64, "bf16", "rms"),
    of(4096, "bf16", "added, rms", addend="*bf16", total="*bf16"),
    of(768, "fp16", "layer norm", bias="*fp32"),
    of(16_384, "bf16", "added, rms", addend="*bf16", total="*bf16"),
    of(16_384, "fp32", "added, layer norm", addend="*fp32", total="*fp32", bias="*fp32"),
]
