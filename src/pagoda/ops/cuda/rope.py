"""RoPE, with the norms of q and k where a layer has them, and K and V written into the cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.fp8 import as_stored, to_stored
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import AttentionLayer

# Elements of the heads that one program takes, and warps for them: a thread loads 16 bytes of each half of a head.
PROGRAM_ELEMENTS = 1024
NUM_WARPS = 2


def rope_and_store_kv(
    qkv: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor] | None,
    step: CudaStep,
    kv: LayerKV,
    layer: AttentionLayer[CudaWeight],
    *,
    q: torch.Tensor,
) -> None:
    """Split qkv [T, (heads + 2 kv_heads) × head_dim]; apply the layer's q/k norm and RoPE (halves paired, arXiv:2104.09864) in
    float32; write K and V to the step's slots of the cache, and q [T, heads × head_dim].

    angles: cosines and sines [T, dim / 2], float32; None: the layer has no RoPE. All are contiguous.
    """
    spec, (keys, values), num_tokens = layer.spec, kv, qkv.shape[0]
    cosines, sines = (None, None) if angles is None else angles
    rows = max(1, PROGRAM_ELEMENTS // triton.next_power_of_2(spec.head_dim))
    q_programs, kv_programs = (-(-num_tokens * heads // rows) for heads in (spec.num_heads, spec.num_kv_heads))
    _rope_and_store[(q_programs + 2 * kv_programs,)](
        qkv,
        cosines,
        sines,
        None if layer.q_norm is None else layer.q_norm.values,
        None if layer.k_norm is None else layer.k_norm.values,
        layer.norm_eps,
        step.slot_mapping,
        as_stored(keys),
        as_stored(values),
        q,
        num_tokens,
        NUM_HEADS=spec.num_heads,
        NUM_KV_HEADS=spec.num_kv_heads,
        HEAD_DIM=spec.head_dim,
        HALF=0 if cosines is None else cosines.shape[1],
        BLOCK_SIZE=keys.shape[2],
        ROWS=rows,
        num_warps=NUM_WARPS,
    )


@triton.jit(do_not_specialize=["num_tokens"])
def _rope_and_store(
    qkv,
    cosines,
    sines,
    q_gain,
    k_gain,
    eps,
    slots,
    keys,
    values,
    q,
    num_tokens,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A program takes ROWS of all tokens' heads: of q, of k or of v."""
    part = tl.program_id(0)
    first_k = tl.cdiv(num_tokens * NUM_HEADS, ROWS)
    first_v = first_k + tl.cdiv(num_tokens * NUM_KV_HEADS, ROWS)
    if part < first_k:
        token, head, inside = _heads(part, num_tokens, NUM_HEADS, ROWS)
        source = qkv + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + head) * HEAD_DIM
        query = q + (token * NUM_HEADS + head) * HEAD_DIM
        _turn(source, query, inside, q_gain, eps, cosines, sines, token, HEAD_DIM, HALF)
    elif part < first_v:
        token, head, inside = _heads(part - first_k, num_tokens, NUM_KV_HEADS, ROWS)
        source = qkv + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + NUM_HEADS + head) * HEAD_DIM
        key = keys + _cached(slots, token, head, inside, NUM_KV_HEADS, BLOCK_SIZE) * HEAD_DIM
        _turn(source, key, inside, k_gain, eps, cosines, sines, token, HEAD_DIM, HALF)
    else:
        token, head, inside = _heads(part - first_v, num_tokens, NUM_KV_HEADS, ROWS)
        source = qkv + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + NUM_HEADS + NUM_KV_HEADS + head) * HEAD_DIM
        value = values + _cached(slots, token, head, inside, NUM_KV_HEADS, BLOCK_SIZE) * HEAD_DIM
        _turn(source, value, inside, None, eps, None, None, token, HEAD_DIM, 0)


@triton.jit
def _heads(part, num_tokens, NUM_HEADS: tl.constexpr, ROWS: tl.constexpr):
    """Token and head of each row of this part [ROWS, 1], and whether there is one."""
    row = part * ROWS + tl.arange(0, ROWS)[:, None]
    return (row // NUM_HEADS).to(tl.int64), row % NUM_HEADS, row < num_tokens * NUM_HEADS


@triton.jit
def _cached(slots, token, head, inside, NUM_KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Which of the rows [blocks, kv_heads, block_size] of the cache are these heads' [n, 1]."""
    slot = tl.load(slots + token, inside, other=0).to(tl.int64)
    return (slot // BLOCK_SIZE * NUM_KV_HEADS + head) * BLOCK_SIZE + slot % BLOCK_SIZE


@triton.jit
def _turn(source, target, inside, gain, eps, cosines, sines, token, HEAD_DIM: tl.constexpr, HALF: tl.constexpr):
    """From and to pointers to heads [n, 1], where inside [n, 1]: normed if there is a gain [HEAD_DIM], and the first 2 × HALF
    elements turned, element i with i + HALF. The two halves and the rest are apart, so that each is read in one run."""
    REST: tl.constexpr = HEAD_DIM - 2 * HALF
    if HALF > 0:
        i = tl.arange(0, triton.next_power_of_2(HALF))[None, :]
        in_half = inside & (i < HALF)
        first = tl.load(source + i, in_half, other=0.0).to(tl.float32)
        second = tl.load(source + HALF + i, in_half, other=0.0).to(tl.float32)
    if REST > 0:
        j = 2 * HALF + tl.arange(0, triton.next_power_of_2(REST))[None, :]
        in_rest = inside & (j < HEAD_DIM)
        rest = tl.load(source + j, in_rest, other=0.0).to(tl.float32)
    if gain is not None:
        squares = tl.zeros(source.shape, tl.float32)
        if HALF > 0:
            squares += tl.sum(first * first + second * second, axis=1, keep_dims=True)
        if REST > 0:
            squares += tl.sum(rest * rest, axis=1, keep_dims=True)
        factor = tl.rsqrt(squares / HEAD_DIM + eps)
        if HALF > 0:
            first *= factor * tl.load(gain + i, i < HALF, other=0.0)
            second *= factor * tl.load(gain + HALF + i, i < HALF, other=0.0)
        if REST > 0:
            rest *= factor * tl.load(gain + j, j < HEAD_DIM, other=0.0)
    if HALF > 0:
        cosine = tl.load(cosines + token * HALF + i, in_half, other=0.0)
        sine = tl.load(sines + token * HALF + i, in_half, other=0.0)
        tl.store(target + i, to_stored(first * cosine - second * sine, target), in_half)
        tl.store(target + HALF + i, to_stored(second * cosine + first * sine, target), in_half)
    if REST > 0:
        tl.store(target + j, to_stored(rest, target), in_rest)
