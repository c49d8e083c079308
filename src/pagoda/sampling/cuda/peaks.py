"""The first token of each row's line."""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda.sampling.cuda.line import BINS, LAST, keys_of


@triton.jit(do_not_specialize=["blocks_per_split"])
def find_peaks(
    logits_ptr,
    row_stride,
    vocab_size,
    blocks_per_split,
    peaks_ptr,
    counts_ptr,
    weights_ptr,
    MAX_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """peaks [R, MAX_SPLITS] int64: the smallest key of each split of each row. Grid (R, splits).

    counts [R, BINS] int32 and weights [R, BINS] int64 become zero, for `histogram.fill`; both None: nothing will fill them.
    """
    row = tl.program_id(0)
    split = tl.program_id(1)
    if counts_ptr is not None and split == 0:
        at = row * BINS + tl.arange(0, BINS)
        tl.store(counts_ptr + at, tl.zeros([BINS], tl.int32))
        tl.store(weights_ptr + at, tl.zeros([BINS], tl.int64))
    logits_ptr += row.to(tl.int64) * row_stride
    first = split * blocks_per_split * BLOCK
    best = tl.zeros([BLOCK], tl.int64) + LAST
    for start in range(first, tl.minimum(first + blocks_per_split * BLOCK, vocab_size), BLOCK):
        ids = start + tl.arange(0, BLOCK)
        is_token = ids < vocab_size
        keys = keys_of(tl.load(logits_ptr + ids, mask=is_token, other=0.0), ids)
        best = tl.minimum(best, tl.where(is_token, keys, LAST))
    tl.store(peaks_ptr + row * MAX_SPLITS + split, tl.min(best, 0))
