from pagoda.ops.cuda.clear import _clear
from tests.kernels.triton_aot import variant

VARIANTS = [
    variant(_clear, kind, storage=f"*{kind}", begins="*i64", sizes="*i64", block_ids="*i32", ELEMENTS=4096)
    for kind in ("i8", "i16", "i32")
]
