"""The end of choosing: from the peaks and the histogram of each row to its token."""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda.sampling.cuda.line import BINS, id_of, is_no_number, logit_of
from pagoda.sampling.cuda.peaks import row_peaks
from pagoda.sampling.cuda.reach import reach


@triton.jit(do_not_specialize_on_alignment=["token_ids_ptr", "broken_ptr"])
def choose(
    logits_ptr,
    row_stride,
    vocab_size,
    chunk_size,
    peaks_ptr,
    flags_ptr,
    temperatures_ptr,
    bins_per_unit_ptr,
    least_ptr,
    top_k_ptr,
    top_p_ptr,
    uniforms_ptr,
    counts_ptr,
    weights_ptr,
    fine_counts_ptr,
    fine_weights_ptr,
    gathered_keys_ptr,
    gathered_sizes_ptr,
    token_ids_ptr,
    broken_ptr,
    MAX_CHUNKS: tl.constexpr,
    GATHERED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """token_ids [R] int32, broken [R] int8. Grid (R,).

    flags: as `edits.edit` leaves them; None where nothing was edited. temperatures and all below are None where no row
    chooses at random; a temperature of 0 is a row that does not.
    """
    row = tl.program_id(0)
    peaks_ptr += row * MAX_CHUNKS
    first_key = tl.min(row_peaks(peaks_ptr, vocab_size, chunk_size, MAX_CHUNKS), 0)
    peak = logit_of(first_key)
    is_without = peak == float("-inf")
    is_broken = is_no_number(first_key) | is_without
    if flags_ptr is not None:
        flags = tl.load(flags_ptr + row)
        is_broken = is_no_number(first_key) | ((flags & 1) != 0) | (is_without & ((flags & 2) == 0))
    token_id = id_of(first_key)
    if temperatures_ptr is not None:
        temperature = tl.load(temperatures_ptr + row)
        # Where everything is barred, the first token is as good as any.
        if (temperature > 0.0) & (not is_broken) & (not is_without):
            token_id = _draw(
                logits_ptr + row.to(tl.int64) * row_stride,
                vocab_size,
                chunk_size,
                peaks_ptr,
                peak,
                temperature,
                tl.load(bins_per_unit_ptr + row),
                tl.load(least_ptr + row),
                tl.load(top_k_ptr + row),
                tl.load(top_p_ptr + row),
                tl.load(uniforms_ptr + row),
                row,
                counts_ptr,
                weights_ptr,
                fine_counts_ptr,
                fine_weights_ptr,
                gathered_keys_ptr,
                gathered_sizes_ptr,
                GATHERED,
                GROUP,
                BLOCK,
            )
    tl.store(token_ids_ptr + row, token_id)
    tl.store(broken_ptr + row, is_broken.to(tl.int8))


@triton.jit
def _draw(
    logits_ptr,
    vocab_size,
    chunk_size,
    peaks_ptr,
    peak,
    temperature,
    bins_per_unit,
    least,
    top_k,
    top_p,
    uniform,
    row,
    counts_ptr,
    weights_ptr,
    fine_counts_ptr,
    fine_weights_ptr,
    gathered_keys_ptr,
    gathered_sizes_ptr,
    GATHERED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The token that the row's uniform number chooses.

    Each cut leaves a beginning of the line, so only its weight goes on to the next. What min_p cuts off weighs less than
    `least`, and is in no histogram.
    """
    counts_ptr += row * BINS
    weights_ptr += row * BINS
    fine_counts_ptr += row * BINS
    fine_weights_ptr += row * BINS
    gathered_keys_ptr += row * GATHERED
    gathered_sizes_ptr += row * GATHERED
    left = tl.sum(tl.load(weights_ptr + tl.arange(0, BINS)), 0)
    token_id = tl.zeros([], tl.int32)
    for cut in tl.static_range(3):
        threshold = tl.zeros([], tl.int64)
        if cut == 0:
            if top_k < vocab_size:
                threshold = top_k.to(tl.int64)
        elif cut == 1:
            if top_p < 1.0:
                threshold = nucleus(top_p, left)
        else:
            threshold = tl.minimum((uniform * left.to(tl.float64)).to(tl.int64), left - 1) + 1
        if threshold > 0:
            key, left = reach(
                threshold,
                logits_ptr,
                vocab_size,
                chunk_size,
                peaks_ptr,
                peak,
                temperature,
                bins_per_unit,
                least,
                counts_ptr,
                weights_ptr,
                fine_counts_ptr,
                fine_weights_ptr,
                gathered_keys_ptr,
                gathered_sizes_ptr,
                cut == 0,
                GATHERED,
                GROUP,
                BLOCK,
            )
            token_id = id_of(key)
    return token_id


@triton.jit
def nucleus(top_p, total):
    """The smallest integer that, as a float64, is at least top_p × total: a token is cut off if those before it weigh as much.

    Integers below 2**62 and the float64 next to them differ by less than 1,024.
    """
    bound = top_p * total.to(tl.float64)
    lowest = tl.ceil(bound).to(tl.int64) - 1023
    below = (lowest + tl.arange(0, 1024)).to(tl.float64) < bound
    return tl.maximum(lowest + tl.sum(below.to(tl.int64), 0), 1)
