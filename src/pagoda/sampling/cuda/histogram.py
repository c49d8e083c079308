"""How many tokens there are, and what they weigh, in each bin of the rows that choose at random."""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda.sampling.cuda.line import BINS, bins_of, is_no_number, logit_of, peak_key, weights_of


@triton.jit(do_not_specialize=["splits", "blocks_per_split"])
def fill(
    logits_ptr,
    row_stride,
    vocab_size,
    splits,
    blocks_per_split,
    peaks_ptr,
    temperatures_ptr,
    bins_per_unit_ptr,
    least_ptr,
    top_k_ptr,
    counts_ptr,
    weights_ptr,
    MAX_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (R, splits). Tokens that weigh less than the row's `least` are left out. Rows without a top_k need no counts.

    Sums of integers are the same in any order, so atomics do not make a choice depend on chance.
    """
    row = tl.program_id(0)
    split = tl.program_id(1)
    temperature = tl.load(temperatures_ptr + row)
    first_key = peak_key(peaks_ptr, row, splits, MAX_SPLITS)
    peak = logit_of(first_key)
    if (temperature > 0.0) & (not is_no_number(first_key)) & (peak > float("-inf")):
        bins_per_unit = tl.load(bins_per_unit_ptr + row)
        least = tl.load(least_ptr + row)
        is_counted = tl.load(top_k_ptr + row) < vocab_size
        logits_ptr += row.to(tl.int64) * row_stride
        first = split * blocks_per_split * BLOCK
        for start in range(first, tl.minimum(first + blocks_per_split * BLOCK, vocab_size), BLOCK):
            ids = start + tl.arange(0, BLOCK)
            logits = tl.load(logits_ptr + ids, mask=ids < vocab_size, other=float("-inf"))
            weights = weights_of(logits, peak, temperature)
            is_kept = weights >= least
            at = row * BINS + bins_of(logits, peak, bins_per_unit)
            tl.atomic_add(weights_ptr + at, weights, mask=is_kept, sem="relaxed")
            if is_counted:
                tl.atomic_add(counts_ptr + at, 1, mask=is_kept, sem="relaxed")
