"""Sums over inputs that several programs share: each leaves its part, and the one that comes last has the whole.

if SPLITS > 1:
    first, second, is_last = combined(first, second, …)
    num_rows = tl.where(is_last, num_rows, 0)  # the others store nothing
finish(…)
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def combined(
    first, second, partials_ptr, counters_ptr, tile, tiles, split, SPLITS: tl.constexpr, HAS_SECOND: tl.constexpr
):
    """Returns the sums over all splits of a tile in the program that comes last, zeros in the others; and whether it is that.

    first, second: this split's part of the tile's sums, float32 and 2-D; second only where HAS_SECOND. tile: of `tiles`, split:
    of `SPLITS`. Parts are added in the splits' order, whoever comes last. The tile's counter is zero before and after.
    """
    leave(first, partials_ptr, tile * SPLITS + split)
    if HAS_SECOND:
        leave(second, partials_ptr, (tiles + tile) * SPLITS + split)
    tl.debug_barrier()  # all threads' stores come before the one thread's atomic
    is_last = tl.atomic_add(counters_ptr + tile, 1, sem="acq_rel", scope="gpu") == SPLITS - 1
    tl.store(counters_ptr + tile, 0, mask=is_last)
    count = tl.where(is_last, SPLITS, 0)
    first = _collected(first, partials_ptr, tile * SPLITS, count)
    if HAS_SECOND:
        second = _collected(second, partials_ptr, (tiles + tile) * SPLITS, count)
    return first, second, is_last


@triton.jit
def leave(part, partials_ptr, slot):
    """Write a part where `_collected` finds it. slot: its index among parts of its shape."""
    tl.store(partials_ptr + _places(part, slot), part)


@triton.jit
def _collected(like, partials_ptr, slot, count):
    """The sum of parts slot … slot + count - 1, each of the shape of `like`."""
    total = tl.zeros(like.shape, tl.float32)
    for index in range(count):
        # Past the first-level cache, which may still hold what an earlier kernel left here.
        total += tl.load(partials_ptr + _places(like, slot + index), cache_modifier=".cg")
    return total


@triton.jit
def _places(tile, slot):
    HEIGHT: tl.constexpr = tile.shape[0]
    WIDTH: tl.constexpr = tile.shape[1]
    within = tl.arange(0, HEIGHT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return slot * (HEIGHT * WIDTH) + within
