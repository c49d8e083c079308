"""Attention where each request computes one token: RoPE, the writing of K and V, and attention in one kernel."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.attention_tiles import NONE_YET, as_factor, from_stored
from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.fp8 import as_stored, to_stored
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.split_attention import SPLIT_NUMBERS, Splitting, attend_split, finish_split, head_places, splits_of
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import AttentionLayer


def decode_attention(
    qkv: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor] | None,
    step: CudaStep,
    kv: LayerKV,
    layer: AttentionLayer[CudaWeight],
    *,
    out: torch.Tensor,
    machine: Machine,
) -> None:
    """`rope_and_store_kv` and `paged_attention` of a step with one token of each request: qkv [S, …] → out [S, heads ×
    head_dim]. Nothing about the launch may depend on values of the step but on S, so that it can be captured."""
    spec, num_requests = layer.spec, step.num_seqs
    splitting = Splitting.of(num_requests, step.block_table.shape[1] * kv.keys.shape[2], spec, kv, machine)
    cosines, sines = angles or (None, None)
    _decode_attention_kernel[splitting.grid(num_requests, spec)](
        qkv,
        cosines,
        sines,
        None if layer.q_norm is None else layer.q_norm.values,
        None if layer.k_norm is None else layer.k_norm.values,
        layer.norm_eps,
        as_stored(kv.keys),
        as_stored(kv.values),
        out,
        step.slot_mapping,
        step.seq_lens,
        step.block_table,
        step.block_table.stride(0),
        spec.scale * math.log2(math.e),
        splitting.splits,
        splitting.least_tiles,
        machine.partials,
        machine.counters,
        TURNED=0 if cosines is None else 2 * cosines.shape[1],
        **splitting.constants(spec, kv, machine),
    )


@triton.jit(do_not_specialize=SPLIT_NUMBERS)
def _decode_attention_kernel(
    qkv,
    cosines,
    sines,
    q_gain,
    k_gain,
    eps,
    keys,
    values,
    out,
    slot_mapping,
    seq_lens,
    block_table,
    table_width,
    scale,
    splits,
    least_tiles,
    partials,
    counters,
    TURNED: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    MOST_SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """The token's own K and V never come back from the cache: the first split starts its softmax with them, as they are stored.
    The other keys, [oldest, position), were there before. q is turned by every split anew, which is shorter than to wait for
    another kernel's q."""
    split, request = tl.program_id(0), tl.program_id(2)
    position = tl.load(seq_lens + request) - 1
    oldest = tl.maximum(0, position + 1 - WINDOW) if WINDOW else 0
    num_splits = splits_of(oldest, position, splits, least_tiles, KEYS)
    if split >= num_splits:
        return

    kv_head, _, _ = head_places(request, GROUP, KV_HEADS, HEAD_DIM, DIM, ROWS)
    HEAD_TILES: tl.constexpr = (GROUP + ROWS - 1) // ROWS
    head_tile = tl.program_id(1) % HEAD_TILES
    token = qkv + request.to(tl.int64) * ((GROUP + 2) * KV_HEADS * HEAD_DIM)
    heads = head_tile * ROWS + tl.arange(0, ROWS)
    queries = _turned(
        token + (kv_head * GROUP + heads) * HEAD_DIM,
        heads < GROUP,
        request,
        cosines,
        sines,
        q_gain,
        eps,
        HEAD_DIM,
        DIM,
        TURNED,
    )
    queries = as_factor(queries.to(qkv.dtype.element_ty), keys)

    most = tl.full([ROWS], NONE_YET, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    if split == 0:
        one = tl.arange(0, 1)
        dims = tl.arange(0, DIM)[None, :]
        k_place = token + (KV_HEADS * GROUP + kv_head + one) * HEAD_DIM
        k = to_stored(_turned(k_place, one == 0, request, cosines, sines, k_gain, eps, HEAD_DIM, DIM, TURNED), keys)
        v_place = token + (KV_HEADS * (GROUP + 1) + kv_head) * HEAD_DIM + dims
        v = to_stored(tl.load(v_place, mask=dims < HEAD_DIM, other=0.0).to(tl.float32), values)
        slot = tl.load(slot_mapping + request)
        row = (slot // BLOCK_SIZE * KV_HEADS + kv_head) * BLOCK_SIZE + slot % BLOCK_SIZE
        written = dims < tl.where(head_tile == 0, HEAD_DIM, 0)  # once, if several programs share the KV head
        tl.store(keys + row * HEAD_DIM + dims, k, mask=written)
        tl.store(values + row * HEAD_DIM + dims, v, mask=written)
        most = tl.sum(queries.to(tl.float32) * from_stored(k, HAS_E4M3).to(tl.float32), 1) * scale
        total = tl.full([ROWS], 1.0, tl.float32)
        acc = tl.broadcast_to(from_stored(v, HAS_E4M3).to(tl.float32), [ROWS, DIM])
    most, total, acc = attend_split(
        queries, keys, values, block_table + request.to(tl.int64) * table_width, kv_head, oldest, position, split, num_splits,
        scale, most, total, acc, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, KEYS, STAGES, HAS_E4M3,
    )  # fmt: skip
    finish_split(
        out, request, most, total, acc, partials, counters, splits, split, num_splits,
        GROUP, KV_HEADS, HEAD_DIM, DIM, ROWS, MOST_SPLITS,
    )  # fmt: skip


@triton.jit
def _turned(
    heads,
    is_head,
    request,
    cosines,
    sines,
    gain,
    eps,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    TURNED: tl.constexpr,
):
    """Heads that begin at these places [n], normed if there is a gain, their first TURNED elements turned (halves paired,
    arXiv:2104.09864): [n, DIM] float32. Each thread loads an element's partner as well, which lies in the same cache line,
    rather than to get it from another thread."""
    dims = tl.arange(0, DIM)
    inside = is_head[:, None] & (dims < HEAD_DIM)[None, :]
    x = tl.load(heads[:, None] + dims[None, :], mask=inside, other=0.0).to(tl.float32)
    root = tl.full([heads.shape[0]], 1.0, tl.float32)
    if gain is not None:
        root = tl.rsqrt(tl.sum(x * x, 1) / HEAD_DIM + eps)
        x = x * root[:, None] * tl.load(gain + dims, mask=dims < HEAD_DIM, other=0.0)[None, :]
    if TURNED:
        HALF: tl.constexpr = TURNED // 2
        is_turned = dims < TURNED
        partner_dims = tl.where(dims < HALF, dims + HALF, dims - HALF)
        partner = tl.load(heads[:, None] + partner_dims[None, :], mask=inside & is_turned[None, :], other=0.0).to(
            tl.float32
        )
        if gain is not None:
            partner = partner * root[:, None] * tl.load(gain + partner_dims, mask=is_turned, other=0.0)[None, :]
        angle = request * HALF + dims % HALF
        cosine = tl.load(cosines + angle, mask=is_turned, other=1.0)
        sine = tl.load(sines + angle, mask=is_turned, other=0.0)
        x = x * cosine[None, :] + partner * tl.where(dims < HALF, -sine, sine)[None, :]
    return x
