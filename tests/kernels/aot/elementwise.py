"""Variants of elementwise kernels."""

from pagoda.ops.cuda.elementwise import _activation, _add, _angles, _gated_activation, _select_rows
from tests.kernels.triton_aot import variant

ROWS = {"num_rows": "i32", "width": "i32:16", "ROWS": 1, "COLUMNS": 1024}

VARIANTS = [
    variant(_add, "bf16", x="*bf16", y="*bf16", out="*bf16", **ROWS),
    variant(_select_rows, "bf16", x="*bf16", chosen="*i32", out="*bf16", **ROWS),
    variant(_select_rows, "fp32", x="*fp32", chosen="*i32", out="*fp32", **ROWS),
    variant(_gated_activation, "bf16, silu", x="*bf16", out="*bf16", KIND="silu", **ROWS),
    variant(_gated_activation, "fp32, gelu", x="*fp32", out="*fp32", KIND="gelu_tanh", **ROWS),
    variant(_activation, "fp16, gelu", x="*fp16", out="*fp16", KIND="gelu_tanh", **ROWS),
    variant(
        _angles,
        "fp32",
        positions="*i32",
        frequencies="*fp32",
        cosines="*fp32",
        sines="*fp32",
        **{**ROWS, "ROWS": 16, "COLUMNS": 64},
    ),
]
