"""Penalties, biases and barred tokens, written into the logits and taken out of them again.

Edits lie one kind after the other, in the order of `SamplingBatch`; starts [4, rows + 1] int32 tells where each row's of each
kind begin. A program works on one row, so that a barrier lies between one kind and the next, which may edit the same logit.
"""

from __future__ import annotations

import triton
import triton.language as tl

REPETITION, SUBTRACT, ADD, BAR = (tl.constexpr(kind) for kind in range(4))
_LARGEST = tl.constexpr(3.4028234663852886e38)  # of float32


@triton.jit
def edit(
    logits_ptr, row_stride, starts_ptr, starts_stride, ids_ptr, values_ptr, saved_ptr, flags_ptr, BLOCK: tl.constexpr
):
    """Do them. Grid (R,). ids, values: of edit i at 2i and at 2i + 1, of the same memory.

    saved: the logit that each edit found before any was done. flags [R]: 1 if one of these was NaN or +inf, and 2 if one was
    a number: what `broken_rows` must know of the logits as they were.
    """
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * row_stride
    flags = tl.zeros([BLOCK], tl.int32)
    for kind in tl.static_range(4):
        end = tl.load(starts_ptr + kind * starts_stride + row + 1)
        for start in range(tl.load(starts_ptr + kind * starts_stride + row), end, BLOCK):
            at = start + tl.arange(0, BLOCK)
            ids = tl.load(ids_ptr + 2 * at, mask=at < end, other=0)
            logits = tl.load(logits_ptr + ids, mask=at < end, other=float("-inf"))
            tl.store(saved_ptr + at, logits, mask=at < end)
            flags |= tl.where(logits < float("inf"), tl.where(logits > float("-inf"), 2, 0), 1)
    tl.store(flags_ptr + row, tl.max(flags & 1, 0) | tl.max(flags & 2, 0))
    for kind in tl.static_range(3):
        tl.debug_barrier()
        end = tl.load(starts_ptr + kind * starts_stride + row + 1)
        for start in range(tl.load(starts_ptr + kind * starts_stride + row), end, BLOCK):
            at = start + tl.arange(0, BLOCK)
            ids = tl.load(ids_ptr + 2 * at, mask=at < end, other=0)
            values = tl.load(values_ptr + 2 * at + 1, mask=at < end, other=1.0)
            logits = tl.load(logits_ptr + ids, mask=at < end, other=0.0)
            if kind == REPETITION:
                logits = tl.where(logits > 0.0, tl.div_rn(logits, values), logits * values)
            elif kind == SUBTRACT:
                logits -= values
            else:
                logits += values
            tl.store(logits_ptr + ids, logits, mask=at < end)
    # A logit near float32's limit may have been pushed over it.
    for kind in tl.static_range(4):
        tl.debug_barrier()
        end = tl.load(starts_ptr + kind * starts_stride + row + 1)
        for start in range(tl.load(starts_ptr + kind * starts_stride + row), end, BLOCK):
            at = start + tl.arange(0, BLOCK)
            ids = tl.load(ids_ptr + 2 * at, mask=at < end, other=0)
            if kind == BAR:
                logits = tl.load(values_ptr + 2 * at + 1, mask=at < end, other=0.0)
            else:
                logits = tl.load(logits_ptr + ids, mask=at < end, other=0.0)
                logits = tl.where(logits > _LARGEST, _LARGEST, logits)
            tl.store(logits_ptr + ids, logits, mask=at < end)


@triton.jit
def restore(logits_ptr, row_stride, starts_ptr, starts_stride, ids_ptr, saved_ptr, BLOCK: tl.constexpr):
    """Write the saved logits back: of a token that several kinds edited each has saved the same one. Grid (R,)."""
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * row_stride
    for kind in tl.static_range(4):
        end = tl.load(starts_ptr + kind * starts_stride + row + 1)
        for start in range(tl.load(starts_ptr + kind * starts_stride + row), end, BLOCK):
            at = start + tl.arange(0, BLOCK)
            ids = tl.load(ids_ptr + 2 * at, mask=at < end, other=0)
            tl.store(logits_ptr + ids, tl.load(saved_ptr + at, mask=at < end), mask=at < end)
