"""Variants of embedding."""

from pagoda.ops.cuda.embed import _dense_rows
from tests.kernels.triton_aot import variant

VARIANTS = [
    variant(
        _dense_rows,
        dtype,
        ids="*i32",
        values=f"*{dtype}",
        scale="fp32",
        out=f"*{dtype}",
        num_rows="i32",
        width="i32:16",
        ROWS=1,
        COLUMNS=1024,
    )
    for dtype in ("bf16", "fp16", "fp32")
]
