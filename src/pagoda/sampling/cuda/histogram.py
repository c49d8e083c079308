"""How many tokens there are, and what they weigh, in each bin of the rows that choose at random."""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda.sampling.cuda.line import BINS, bins_of, is_no_number, logit_of, weights_of
from pagoda.sampling.cuda.peaks import lowest_of_top, row_peaks


@triton.jit(do_not_specialize=["blocks_per_split"])
def fill(
    logits_ptr,
    row_stride,
    vocab_size,
    chunk_size,
    blocks_per_split,
    peaks_ptr,
    temperatures_ptr,
    bins_per_unit_ptr,
    least_ptr,
    top_k_ptr,
    counts_ptr,
    weights_ptr,
    MAX_CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (R, splits). Tokens that weigh less than the row's `least` are left out, and some of those that its top_k cuts off.
    Rows without a top_k need no counts.

    Sums of integers are the same in any order, so atomics do not make a choice depend on chance.
    """
    row = tl.program_id(0)
    split = tl.program_id(1)
    temperature = tl.load(temperatures_ptr + row)
    peaks_ptr += row * MAX_CHUNKS
    first_key = tl.min(row_peaks(peaks_ptr, vocab_size, chunk_size, MAX_CHUNKS), 0)
    peak = logit_of(first_key)
    if (temperature > 0.0) & (not is_no_number(first_key)) & (peak > float("-inf")):
        bins_per_unit = tl.load(bins_per_unit_ptr + row)
        least = tl.load(least_ptr + row)
        top_k = tl.load(top_k_ptr + row)
        lowest = tl.full([], float("-inf"), tl.float32)
        if top_k <= MAX_CHUNKS:
            lowest = lowest_of_top(peaks_ptr, vocab_size, chunk_size, top_k, MAX_CHUNKS)
        logits_ptr += row.to(tl.int64) * row_stride
        first = split * blocks_per_split * BLOCK
        for start in range(first, tl.minimum(first + blocks_per_split * BLOCK, vocab_size), BLOCK):
            ids = start + tl.arange(0, BLOCK)
            logits = tl.load(logits_ptr + ids, mask=ids < vocab_size, other=float("-inf"))
            if tl.max(logits, 0) >= lowest:
                weights = weights_of(logits, peak, temperature)
                is_kept = (weights >= least) & (logits >= lowest)
                at = row * BINS + bins_of(logits, peak, bins_per_unit)
                tl.atomic_add(weights_ptr + at, weights, mask=is_kept, sem="relaxed")
                if top_k < vocab_size:
                    tl.atomic_add(counts_ptr + at, 1, mask=is_kept, sem="relaxed")
