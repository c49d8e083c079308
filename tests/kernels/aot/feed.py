from pagoda.ops.cuda.feed import _feed
from tests.kernels.triton_aot import variant

VARIANTS = [
    variant(
        _feed,
        "any step",
        input_ids="*i32",
        chosen="*i32",
        sent_width="*i32",
        sent_table="*i32",
        block_table="*i32",
        num_tokens="i32",
        num_seqs="i32",
        vocab_size="i32",
        width="i32",
        TOKENS=256,
        BLOCKS=256,
        num_warps=1,
    ),
]
