"""`tiled`: the tiles that are chosen for a 7B model's products, and the fixed ones."""

from __future__ import annotations

from typing import Any

from pagoda.ops.cuda.tiled import _tiled
from tests.kernels.aot_epilogues import GATED, PLAIN, RESIDUAL
from tests.kernels.triton_aot import variant

_COMMON = {
    "x_ptr": "*bf16",
    "x_stride": "i32:16",
    "values_ptr": "*bf16",
    "values_descriptor": None,
    "partials_ptr": "*fp32",
    "counters_ptr": "*i32",
    "num_rows": "i32",
    "num_outputs": "i32:16",
    "num_inputs": "i32:16",
    "splits": "i32",
}
_FLOAT = _COMMON | {"x_ptr": "*fp32", "values_ptr": "*fp32"}

_HOPPER = {"architectures": (90,)}


def _described(outputs: int, inputs: int) -> dict[str, Any]:
    return _COMMON | {"values_descriptor": f"tensordesc<bf16[{outputs},{inputs}]>"}


def _few(rows: int, inputs: int, stages: int) -> dict[str, int]:
    return {
        "BM": rows,
        "BN": 64,
        "BK": inputs,
        "IS_SPLIT": True,
        "GROUP_ROWS": 1,
        "STAGES": stages,
        "num_stages": stages,
    }


def _fixed(outputs: int, inputs: int) -> dict[str, int]:
    return {"BM": 64, "BN": outputs, "BK": inputs, "IS_SPLIT": False, "GROUP_ROWS": 16, "STAGES": 3, "num_stages": 3}


VARIANTS = [
    variant(_tiled, "16 rows, split, described", **_few(16, 128, 4), **_described(64, 128), **RESIDUAL, **_HOPPER),
    variant(_tiled, "16 rows, gated, described", **_few(16, 64, 4), **_described(64, 64), **GATED, **_HOPPER),
    variant(_tiled, "16 rows, norm, split", **_few(16, 128, 4), **_COMMON, **PLAIN),
    variant(_tiled, "16 rows, residual, split", **_few(16, 128, 4), **_COMMON, **RESIDUAL),
    variant(_tiled, "16 rows, gated, split", **_few(16, 64, 4), **_COMMON, **GATED),
    variant(_tiled, "64 rows, split", **_few(64, 64, 4), **_COMMON, **PLAIN),
    variant(_tiled, "64 rows, gated, split", most_spilled=8, **_few(64, 64, 4), **_COMMON, **GATED),
    variant(_tiled, "fixed, wide", **_fixed(128, 64), **_COMMON, **PLAIN),
    variant(_tiled, "fixed, narrow", **_fixed(64, 64), **_COMMON, **PLAIN),
    variant(_tiled, "16 rows, float32, split", most_spilled=8, **_few(16, 64, 4), **_FLOAT, **PLAIN),
    variant(_tiled, "fixed, float32", **_fixed(128, 32), **_FLOAT, **PLAIN),
]
