"""Sums over inputs that several programs share: each leaves its part, and the one that comes last adds them up.

leave(first, partials_ptr, slot, …)        once for each accumulator
if arrived_last(counters_ptr, tile, splits):
    first = collected(…)
    finish(…)
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def leave(part, partials_ptr, slot):
    """Write this program's part, any float32 tile, where `collected` finds it. slot: index among all parts of its shape."""
    tl.store(partials_ptr + _places(part, slot), part)


@triton.jit
def arrived_last(counters_ptr, tile, splits):
    """Count this program, whose parts are left, in. Whether it is the last of its tile's `splits`; the counter is zero again
    then. All the tile's parts can be read from there on."""
    tl.debug_barrier()  # each thread's stores come before the one thread's atomic
    before = tl.atomic_add(counters_ptr + tile, 1, sem="acq_rel", scope="gpu")
    is_last = before == splits - 1
    if is_last:
        tl.store(counters_ptr + tile, 0)
    return is_last


@triton.jit
def collected(like, partials_ptr, slot, splits, step):
    """The sum of the `splits` parts slot, slot + step, …, in this order whoever came last. like: a tile of their shape."""
    total = tl.zeros(like.shape, tl.float32)
    for index in range(splits):
        # Past the first-level cache, which may hold what another kernel left here.
        total += tl.load(partials_ptr + _places(like, slot + index * step), cache_modifier=".cg")
    return total


@triton.jit
def _places(tile, slot):
    HEIGHT: tl.constexpr = tile.shape[0]
    WIDTH: tl.constexpr = tile.shape[1]
    within = tl.arange(0, HEIGHT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return slot.to(tl.int64) * (HEIGHT * WIDTH) + within
