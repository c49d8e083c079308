"""Variants of clearing blocks."""

from pagoda.ops.cuda.clear import _clear
from tests.kernels.triton_aot import variant

VARIANTS = [
    variant(
        _clear,
        f"{integer}, {multiple}",
        storage=f"*{integer}",
        begins="*i64",
        sizes="*i64",
        block_ids="*i32",
        MULTIPLE=multiple,
        ELEMENTS=4096,
    )
    for integer in ("i8", "i16", "i32")
    for multiple in (1, 16)
]
