"""`gemv`: the tiles that are chosen for a 7B model's products on 132 multiprocessors."""

from __future__ import annotations

from pagoda.ops.cuda.gemv import _gemv
from tests.kernels.aot_epilogues import GATED, PLAIN, RESIDUAL
from tests.kernels.triton_aot import variant

_COMMON = {
    "x_ptr": "*bf16",
    "values_ptr": "*bf16",
    "partials_ptr": "*fp32",
    "counters_ptr": "*i32",
    "num_outputs": "i32:16",
    "num_inputs": "i32:16",
    "splits": "i32",
    "STAGES": 1,
    "num_stages": 1,
}

VARIANTS = [
    variant(_gemv, "qkv", BN=8, BK=1024, IS_SPLIT=False, **_COMMON, **PLAIN),
    variant(_gemv, "o and down, residual", BN=4, BK=1024, IS_SPLIT=False, **_COMMON, **RESIDUAL),
    variant(_gemv, "narrow, residual, split", BN=4, BK=1024, IS_SPLIT=True, **_COMMON, **RESIDUAL),
    variant(_gemv, "gated", BN=4, BK=1024, IS_SPLIT=False, **_COMMON, **GATED),
    variant(
        _gemv,
        "float32",
        BN=8,
        BK=1024,
        IS_SPLIT=False,
        **(_COMMON | {"x_ptr": "*fp32", "values_ptr": "*fp32"}),
        **PLAIN,
    ),
]
