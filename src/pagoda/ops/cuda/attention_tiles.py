"""What attention's kernels share: tiles of the paged cache, and a softmax that goes on from one tile to the next."""

from __future__ import annotations

import triton
import triton.language as tl

# The maximum of no scores yet. Finite, so that a tile of which a row sees nothing is exp2(-inf - NONE_YET) = 0, not a NaN.
NONE_YET = tl.constexpr(-1e30)
MINUS_INFINITY = tl.constexpr(float("-inf"))


def padded_dim(head_dim: int) -> int:
    """A power of two, at least the 16 that the GPU's matrix products sum over at once."""
    dim: int = triton.next_power_of_2(head_dim)
    return max(16, dim)


@triton.jit
def cached_tile(
    cache,
    table,
    kv_head,
    keys_at,
    is_held,
    dtype: tl.constexpr,
    MASKED: tl.constexpr,
    KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """K or V [keys, DIM] of one head at positions keys_at [keys] of the request with this block table, as `dtype`.

    is_held [keys]: where not, neither the table nor the cache is read (there may be anything, NaN too), and the row is 0.
    Without MASKED all are held. DIM: HEAD_DIM padded to a power of two, with zeros.
    """
    dims = tl.arange(0, DIM)[None, :]
    entry = table + keys_at // BLOCK_SIZE
    blocks = tl.load(entry, mask=is_held, other=0) if MASKED else tl.load(entry)
    # int64: a cache has more than 2^31 elements.
    rows = ((blocks.to(tl.int64) * KV_HEADS + kv_head) * BLOCK_SIZE + keys_at % BLOCK_SIZE) * HEAD_DIM
    places = cache + rows[:, None] + dims
    if MASKED and DIM != HEAD_DIM:
        tile = tl.load(places, mask=is_held[:, None] & (dims < HEAD_DIM), other=0)
    elif MASKED:
        tile = tl.load(places, mask=is_held[:, None], other=0)
    elif DIM != HEAD_DIM:
        tile = tl.load(places, mask=dims < HEAD_DIM, other=0)
    else:
        tile = tl.load(places)
    return from_stored(tile, HAS_E4M3).to(dtype)


@triton.jit
def from_stored(x, HAS_E4M3: tl.constexpr):
    """Numbers as the cache holds them; bytes are e4m3fn and become float16, which holds them exactly.

    HAS_E4M3: the GPU has an instruction for that (from sm_89 on). Without it the bits move to float16's places, whose exponent
    is biased by 8 more; that is also right for numbers below 2^-6. Only NaN becomes ±480.
    """
    if x.dtype != tl.uint8:
        result = x
    elif HAS_E4M3:
        result = x.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        wide = x.to(tl.uint16)
        bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
        result = bits.to(tl.float16, bitcast=True) * 256.0
    return result


@triton.jit
def as_factor(q, cache):
    """q in the format that its products with the cache have: its own, but float16 instead of bfloat16 where the cache holds
    bytes, as those become float16 with one instruction for two, and bfloat16 only with several more."""
    return q.to(tl.float16) if cache.dtype.element_ty == tl.uint8 and q.dtype == tl.bfloat16 else q


@triton.jit
def attend(q, k, v, is_seen, scale, most, total, acc, MASKED: tl.constexpr):
    """One tile of the online softmax (arXiv:2307.08691, algorithm 1): q [rows, DIM] over k and v [keys, DIM].

    scale: of the scores, with log2(e), as powers of 2 are what the GPU computes. most [rows]: the greatest scaled score so far;
    total [rows]: the sum of 2^(score - most); acc [rows, DIM]: the sum of that × v. Rows for which nothing is_seen [rows, keys]
    keep the three as they are, bit for bit.
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        scores = tl.where(is_seen, scores, MINUS_INFINITY)
    greatest = tl.maximum(most, tl.max(scores, 1) * scale)
    weights = tl.exp2(tl.fma(scores, scale, -greatest[:, None]))
    fading = tl.exp2(most - greatest)
    total = total * fading + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v, acc * fading[:, None], input_precision="ieee")
    return greatest, total, acc
