"""Finding the token of a row's line at which a running count or weight reaches a threshold, without sorting the row.

A histogram by logits tells the bin in which that is. If its tokens are few, they are gathered and compared each with each; else
they are spread over bins again, by their keys, until they are few. That is bucket selection (Alabi, Blelloch, Purdom and
Wong, "Fast k-selection algorithms for graphics processing units", JEA 17, 2012) with weights beside counts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda.sampling.cuda.line import BINS, LAST, bins_of, keys_of, logit_of, weights_of

_PAIRS = tl.constexpr(8)  # of the gathered tokens, compared with all of them at once


@triton.jit
def reach(
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
    keys_ptr,
    sizes_ptr,
    BY_COUNT: tl.constexpr,
    GATHERED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(key, weight): of the first token up to and with which there are `threshold` tokens, or with which they weigh as much;
    and what they weigh. (LAST, all weight) if there is none.

    Only tokens that weigh at least `least` count. counts, weights [BINS]: the row's histogram of them. The other pointers
    are to the row's scratch memory: fine_counts, fine_weights [BINS], keys, sizes [GATHERED].
    """
    cell, before, before_weight, weight = _first_reached(threshold, 0, 0, counts_ptr, weights_ptr, BY_COUNT)
    key = tl.zeros([], tl.int64) + LAST
    if cell < BINS:
        in_bin = cell
        number, first, last = _gather(
            tl.zeros([], tl.int64),
            key,
            in_bin,
            logits_ptr,
            vocab_size,
            chunk_size,
            peaks_ptr,
            peak,
            bins_per_unit,
            keys_ptr,
            GATHERED,
            GROUP,
            BLOCK,
        )
        while number > GATHERED:
            shift = tl.zeros([], tl.int64)
            while ((last - first) >> shift) >= BINS:
                shift += 1
            _fill_fine(
                first,
                last,
                shift,
                in_bin,
                logits_ptr,
                vocab_size,
                chunk_size,
                peaks_ptr,
                peak,
                temperature,
                bins_per_unit,
                least,
                fine_counts_ptr,
                fine_weights_ptr,
                GROUP,
                BLOCK,
            )
            cell, before, before_weight, _ = _first_reached(
                threshold, before, before_weight, fine_counts_ptr, fine_weights_ptr, BY_COUNT
            )
            begin = first + (cell.to(tl.int64) << shift)
            end = tl.minimum(last, begin + (tl.full([], 1, tl.int64) << shift) - 1)
            number, first, last = _gather(
                begin,
                end,
                in_bin,
                logits_ptr,
                vocab_size,
                chunk_size,
                peaks_ptr,
                peak,
                bins_per_unit,
                keys_ptr,
                GATHERED,
                GROUP,
                BLOCK,
            )
        key, weight = _among(
            threshold, before, before_weight, number, peak, temperature, least, keys_ptr, sizes_ptr, BY_COUNT, GATHERED
        )
    return key, weight


@triton.jit
def _first_reached(threshold, before, before_weight, counts_ptr, weights_ptr, BY_COUNT: tl.constexpr):
    """(bin, before, weight before, weight of all bins): the first bin with which the running number, or weight, reaches the
    threshold, BINS if none does; and what runs up to it. before, before_weight: what lies before all of these bins.
    """
    index = tl.arange(0, BINS)
    # Past the first-level cache: atomics went past it too.
    weights = tl.load(weights_ptr + index, volatile=True)
    sizes = weights
    if BY_COUNT:
        sizes = tl.load(counts_ptr + index, volatile=True).to(tl.int64)
    running = before + tl.cumsum(sizes, 0)
    cell = tl.sum((running < threshold).to(tl.int32), 0)
    is_ahead = index < cell
    ahead = before + tl.sum(tl.where(is_ahead, sizes, 0), 0)
    ahead_weight = before_weight + tl.sum(tl.where(is_ahead, weights, 0), 0)
    return cell, ahead, ahead_weight, tl.sum(weights, 0)


@triton.jit
def _group_bin(peaks_ptr, group, peak, bins_per_unit, GROUP: tl.constexpr):
    """The first bin that a token of this group of chunks is in."""
    first = tl.min(tl.load(peaks_ptr + group * GROUP + tl.arange(0, GROUP)), 0)
    return bins_of(logit_of(first), peak, bins_per_unit)


@triton.jit
def _is_in(keys, begin, end, logits, in_bin, peak, bins_per_unit):
    """Which of the keys from begin to end, both included, are in this bin."""
    return (bins_of(logits, peak, bins_per_unit) == in_bin) & (keys >= begin) & (keys <= end)


@triton.jit
def _gather(
    begin,
    end,
    in_bin,
    logits_ptr,
    vocab_size,
    chunk_size,
    peaks_ptr,
    peak,
    bins_per_unit,
    keys_ptr,
    GATHERED: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(number, first, last) of the keys from begin to end, both included, that are in this bin; they are written down if
    there are at most GATHERED.
    """
    tl.debug_barrier()
    number = tl.zeros([], tl.int32)
    first = tl.zeros([], tl.int64) + LAST
    last = tl.zeros([], tl.int64)
    for group in range(tl.cdiv(vocab_size, chunk_size * GROUP)):
        if _group_bin(peaks_ptr, group, peak, bins_per_unit, GROUP) <= in_bin:
            begin_ids = group * GROUP * chunk_size
            for start in range(begin_ids, tl.minimum(begin_ids + GROUP * chunk_size, vocab_size), BLOCK):
                ids = start + tl.arange(0, BLOCK)
                logits = tl.load(logits_ptr + ids, mask=ids < vocab_size, other=float("-inf"))
                keys = keys_of(logits, ids)
                is_in = _is_in(keys, begin, end, logits, in_bin, peak, bins_per_unit) & (ids < vocab_size)
                found = tl.sum(is_in.to(tl.int32), 0)
                if found > 0:
                    places = number + tl.cumsum(is_in.to(tl.int32), 0) - 1
                    tl.store(keys_ptr + places, keys, mask=is_in & (places < GATHERED))
                    first = tl.minimum(first, tl.min(tl.where(is_in, keys, LAST), 0))
                    last = tl.maximum(last, tl.max(tl.where(is_in, keys, 0), 0))
                    number += found
    tl.debug_barrier()
    return number, first, last


@triton.jit
def _fill_fine(
    first,
    last,
    shift,
    in_bin,
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
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """counts and weights [BINS] of the keys from first to last, 2**shift keys a bin."""
    index = tl.arange(0, BINS)
    tl.debug_barrier()
    tl.store(counts_ptr + index, tl.zeros([BINS], tl.int32))
    tl.store(weights_ptr + index, tl.zeros([BINS], tl.int64))
    tl.debug_barrier()
    for group in range(tl.cdiv(vocab_size, chunk_size * GROUP)):
        if _group_bin(peaks_ptr, group, peak, bins_per_unit, GROUP) <= in_bin:
            begin_ids = group * GROUP * chunk_size
            for start in range(begin_ids, tl.minimum(begin_ids + GROUP * chunk_size, vocab_size), BLOCK):
                ids = start + tl.arange(0, BLOCK)
                logits = tl.load(logits_ptr + ids, mask=ids < vocab_size, other=float("-inf"))
                keys = keys_of(logits, ids)
                is_in = _is_in(keys, first, last, logits, in_bin, peak, bins_per_unit) & (ids < vocab_size)
                if tl.max(is_in.to(tl.int32), 0) > 0:
                    weights = weights_of(logits, peak, temperature)
                    is_in &= weights >= least
                    at = ((keys - first) >> shift).to(tl.int32)
                    tl.atomic_add(weights_ptr + at, weights, mask=is_in, sem="relaxed")
                    tl.atomic_add(counts_ptr + at, 1, mask=is_in, sem="relaxed")
    tl.debug_barrier()


@triton.jit
def _among(
    threshold,
    before,
    before_weight,
    number,
    peak,
    temperature,
    least,
    keys_ptr,
    sizes_ptr,
    BY_COUNT: tl.constexpr,
    GATHERED: tl.constexpr,
):
    """As `reach`, among the gathered keys, in any order; `before` and `before_weight` run up to the first of them."""
    slot = tl.arange(0, GATHERED)
    is_used = slot < number
    keys = tl.load(keys_ptr + slot, mask=is_used, other=LAST, volatile=True)
    weights = weights_of(tl.where(is_used, logit_of(keys), peak), peak, temperature)
    weights = tl.where(is_used & (weights >= least), weights, 0)
    sizes = weights
    if BY_COUNT:
        sizes = (weights > 0).to(tl.int64)
    tl.store(sizes_ptr + slot, sizes)
    tl.debug_barrier()
    ahead = tl.zeros([GATHERED], tl.int64) + before
    for start in range(0, number, _PAIRS):
        other = start + tl.arange(0, _PAIRS)
        other_keys = tl.load(keys_ptr + other, mask=other < number, other=LAST, volatile=True)
        other_sizes = tl.load(sizes_ptr + other, mask=other < number, other=0, volatile=True)
        ahead += tl.sum(tl.where(other_keys[None, :] < keys[:, None], other_sizes[None, :], 0), 1)
    is_reached = (ahead < threshold) & (ahead + sizes >= threshold)
    key = tl.min(tl.where(is_reached, keys, LAST), 0)
    return key, before_weight + tl.sum(tl.where(keys <= key, weights, 0), 0)
