"""The first token of each row's line, and of each chunk of the row."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from pagoda.planning.cuda_sampling import MAX_CHUNKS
from pagoda.sampling.cuda.line import BINS, LAST, keys_of, logit_of

GROUP = 4  # chunks that are looked at at once
_PAIRS = tl.constexpr(8)  # peaks that all are compared with at once


@dataclass(frozen=True, slots=True)
class Chunks:
    """size: tokens of a chunk, a multiple of a block; the last one may have fewer. The row has at most `MAX_CHUNKS`."""

    size: int

    @classmethod
    def of(cls, vocab_size: int, block: int) -> Chunks:
        return cls(-(-vocab_size // (block * MAX_CHUNKS)) * block)


@triton.jit(do_not_specialize=["groups_per_split"])
def find_peaks(
    logits_ptr,
    row_stride,
    vocab_size,
    chunk_size,
    groups_per_split,
    peaks_ptr,
    counts_ptr,
    weights_ptr,
    MAX_CHUNKS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """peaks [R, MAX_CHUNKS] int64: the smallest key of each chunk. Grid (R, splits), each split some groups of chunks.

    counts [R, BINS] int32 and weights [R, BINS] int64 become zero, for `histogram.fill`; both None: nothing will fill them.
    """
    row = tl.program_id(0)
    split = tl.program_id(1)
    if counts_ptr is not None and split == 0:
        at = row * BINS + tl.arange(0, BINS)
        tl.store(counts_ptr + at, tl.zeros([BINS], tl.int32))
        tl.store(weights_ptr + at, tl.zeros([BINS], tl.int64))
    logits_ptr += row.to(tl.int64) * row_stride
    first = split * groups_per_split
    num_groups = tl.cdiv(vocab_size, chunk_size * GROUP)
    for group in range(first, tl.minimum(first + groups_per_split, num_groups)):
        chunks = group * GROUP + tl.arange(0, GROUP)
        best = tl.zeros([GROUP, BLOCK], tl.int64) + LAST
        for start in range(0, chunk_size, BLOCK):
            ids = chunks[:, None] * chunk_size + (start + tl.arange(0, BLOCK))[None, :]
            is_token = ids < vocab_size
            keys = keys_of(tl.load(logits_ptr + ids, mask=is_token, other=0.0), ids)
            best = tl.minimum(best, tl.where(is_token, keys, LAST))
        tl.store(peaks_ptr + row * MAX_CHUNKS + chunks, tl.min(best, 1))


@triton.jit
def row_peaks(peaks_ptr, vocab_size, chunk_size, MAX_CHUNKS: tl.constexpr):
    """A row's chunks' smallest keys [MAX_CHUNKS]; LAST where there is no chunk."""
    chunk = tl.arange(0, MAX_CHUNKS)
    return tl.load(peaks_ptr + chunk, mask=chunk * chunk_size < vocab_size, other=LAST)


@triton.jit
def lowest_of_top(peaks_ptr, vocab_size, chunk_size, top_k, MAX_CHUNKS: tl.constexpr):
    """A logit that at least `top_k` tokens of a row reach: that of the chunk whose peak is the top_k-th of all peaks.
    -inf if there are not so many chunks.
    """
    peaks = row_peaks(peaks_ptr, vocab_size, chunk_size, MAX_CHUNKS)
    places = tl.zeros([MAX_CHUNKS], tl.int32)
    for start in range(0, tl.cdiv(vocab_size, chunk_size), _PAIRS):
        chunk = start + tl.arange(0, _PAIRS)
        others = tl.load(peaks_ptr + chunk, mask=chunk * chunk_size < vocab_size, other=LAST)
        places += tl.sum((others[None, :] < peaks[:, None]).to(tl.int32), 1)
    lowest = tl.min(tl.where((places == top_k - 1) & (peaks < LAST), logit_of(peaks), float("inf")), 0)
    return tl.where(lowest == float("inf"), float("-inf"), lowest)
