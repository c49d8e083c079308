"""Sums over inputs that several programs share: each leaves its part, and the one that comes last has the whole.

A kernel that may split its sums does this before it goes on with them:

    if IS_SPLIT:
        first, second, is_last = combined(first, second, …)
        num_rows = tl.where(is_last, num_rows, 0)  # the others store nothing
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def combined(first, second, partials_ptr, counters_ptr, tile, tiles, split, splits, HAS_SECOND: tl.constexpr):
    """Returns the sums over all splits of a tile in the program that comes last, zeros in the others; and whether it is that.

    first, second: this split's part of the tile's sums, float32 and 2-D; second only where HAS_SECOND. tile: of `tiles`, split:
    of `splits`. Parts are added in the splits' order, whoever comes last. The tile's counter is zero before and after.
    """
    HEIGHT: tl.constexpr = first.shape[0]
    WIDTH: tl.constexpr = first.shape[1]
    within = tl.arange(0, HEIGHT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    firsts_ptr = partials_ptr + tile * splits * (HEIGHT * WIDTH) + within
    seconds_ptr = firsts_ptr + tiles * splits * (HEIGHT * WIDTH)
    tl.store(firsts_ptr + split * (HEIGHT * WIDTH), first)
    if HAS_SECOND:
        tl.store(seconds_ptr + split * (HEIGHT * WIDTH), second)
    tl.debug_barrier()  # all threads' stores come before the one thread's atomic
    is_last = tl.atomic_add(counters_ptr + tile, 1, sem="acq_rel", scope="gpu") == splits - 1
    tl.store(counters_ptr + tile, 0, mask=is_last)
    first = tl.zeros([HEIGHT, WIDTH], tl.float32)
    second = tl.zeros([HEIGHT, WIDTH], tl.float32)
    # Loads go past the first-level cache, which may still hold what an earlier kernel left in these places.
    for part in range(tl.where(is_last, splits, 0)):
        first += tl.load(firsts_ptr + part * (HEIGHT * WIDTH), cache_modifier=".cg")
        if HAS_SECOND:
            second += tl.load(seconds_ptr + part * (HEIGHT * WIDTH), cache_modifier=".cg")
    return first, second, is_last
