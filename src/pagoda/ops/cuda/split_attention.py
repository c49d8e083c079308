"""Attention of single tokens, the keys of each split over several programs (Flash-Decoding, arXiv:2311.01282 §3).

One token reads all its keys once, so what counts is that every multiprocessor reads all the time: few requests, or one long
one among many, keep the GPU busy only if several programs share a request's keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.attention_tiles import NONE_YET, as_factor, attend, cached_tile, padded_dim
from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.fp8 import as_stored
from pagoda.ops.cuda.machine import NUM_COUNTERS, SCRATCH_FLOATS, Machine
from pagoda.ops.cuda.step import CudaStep
from pagoda.planning.model_spec import AttentionSpec

# Bytes of K that a program multiplies at once: 64 keys of head_dim 128 in 2 bytes. With as much of V, one such tile is worked
# on and one or two are on their way; three programs fit a multiprocessor and ask for 100 to 200 KB at a time, of which its
# share of an H200's read bandwidth takes 28 (4.7 TB/s × about 0.8 µs / 132). Smaller tiles would leave more to combine and to
# wait for, larger ones fewer splits where a request is short.
KEY_TILE_BYTES = 16 << 10
STAGES = 5  # see `attention.STAGES`
NUM_WARPS = 4
STAGES_OF_PARTS = tl.constexpr(3)
# The matrix products' least number of rows, and the most heads that one program takes of those that share K and V.
LEAST_ROWS, MOST_ROWS = 16, 64
# Splitting aims at so many programs a multiprocessor: what fits it at once, and one waiting.
PROGRAMS_PER_MULTIPROCESSOR = 4
# The one that combines reads all splits' parts: 16 KB a head at head_dim 128, if there are so many.
MOST_SPLITS = 32
# Not compiled into the kernels, as they differ with the number of requests.
SPLIT_NUMBERS = ("splits", "least_tiles")
# Where requests alone fill the GPU, still so many tokens or more are split, so that no long one is left running alone.
LONG = 8192


@dataclass(frozen=True, slots=True)
class Splitting:
    """rows: heads that one program takes, padded. head_tiles: programs for the heads that share K and V. keys: of a tile.
    splits: programs that share a request's keys, if it has `least_tiles` tiles for each of them."""

    rows: int
    head_tiles: int
    keys: int
    splits: int
    least_tiles: int

    @classmethod
    def of(cls, num_requests: int, most_tokens: int, spec: AttentionSpec, kv: LayerKV, machine: Machine) -> Splitting:
        """Of a launch for so many requests. It must not depend on anything else that changes from step to step, because
        the launch is captured: most_tokens is what the block table has room for."""
        group = spec.num_heads // spec.num_kv_heads
        rows = min(MOST_ROWS, max(LEAST_ROWS, triton.next_power_of_2(group)))
        head_tiles = -(-group // rows)
        key_bytes = padded_dim(spec.head_dim) * kv.keys.element_size()
        keys = max(16, min(128, KEY_TILE_BYTES // key_bytes))
        programs = num_requests * spec.num_kv_heads * head_tiles
        wanted = -(-PROGRAMS_PER_MULTIPROCESSOR * machine.multiprocessors // programs)
        least_tiles = 1
        if wanted == 1:
            wanted, least_tiles = min(4, most_tokens // LONG), LONG // keys
        room = SCRATCH_FLOATS // (programs * rows * (spec.head_dim + 2))
        most = max(1, min(wanted, MOST_SPLITS, room)) if programs <= NUM_COUNTERS else 1
        return cls(rows, head_tiles, keys, 1 << (most.bit_length() - 1), least_tiles)

    def grid(self, num_requests: int, spec: AttentionSpec) -> tuple[int, int, int]:
        """(split, KV head and tile of its heads, request)"""
        return self.splits, spec.num_kv_heads * self.head_tiles, num_requests

    def constants(self, spec: AttentionSpec, kv: LayerKV, machine: Machine) -> dict[str, int]:
        """What the kernels below, and others of their kind, are compiled for."""
        return {
            "GROUP": spec.num_heads // spec.num_kv_heads,
            "KV_HEADS": spec.num_kv_heads,
            "HEAD_DIM": spec.head_dim,
            "DIM": padded_dim(spec.head_dim),
            "BLOCK_SIZE": kv.keys.shape[2],
            "WINDOW": spec.window or 0,
            "ROWS": self.rows,
            "KEYS": self.keys,
            "MOST_SPLITS": MOST_SPLITS,
            "STAGES": STAGES,
            "HAS_E4M3": machine.has_e4m3,
            "num_warps": NUM_WARPS,
        }


def single_token_attention(
    q: torch.Tensor,
    step: CudaStep,
    singles: torch.Tensor,
    kv: LayerKV,
    spec: AttentionSpec,
    *,
    out: torch.Tensor,
    machine: Machine,
) -> None:
    """`paged_attention` of requests with one token each. singles [n, 2]: (request, its token in the step)."""
    splitting = Splitting.of(len(singles), step.block_table.shape[1] * kv.keys.shape[2], spec, kv, machine)
    _single_token_kernel[splitting.grid(len(singles), spec)](
        q,
        as_stored(kv.keys),
        as_stored(kv.values),
        out,
        singles,
        step.seq_lens,
        step.block_table,
        step.block_table.stride(0),
        spec.scale * math.log2(math.e),
        splitting.splits,
        splitting.least_tiles,
        machine.partials,
        machine.counters,
        **splitting.constants(spec, kv, machine),
    )


# Where the single tokens' tiles begin differs with the step.
@triton.jit(do_not_specialize=SPLIT_NUMBERS, do_not_specialize_on_alignment=["singles"])
def _single_token_kernel(
    q,
    keys,
    values,
    out,
    singles,
    seq_lens,
    block_table,
    table_width,
    scale,
    splits,
    least_tiles,
    partials,
    counters,
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
    split, row = tl.program_id(0), tl.program_id(2)
    request = tl.load(singles + 2 * row)
    token = tl.load(singles + 2 * row + 1)
    end = tl.load(seq_lens + request)
    oldest = tl.maximum(0, end - WINDOW) if WINDOW else 0
    num_splits = splits_of(oldest, end, splits, least_tiles, KEYS)
    if split >= num_splits:
        return
    kv_head, places, inside = head_places(token, GROUP, KV_HEADS, HEAD_DIM, DIM, ROWS)
    queries = as_factor(tl.load(q + places, mask=inside, other=0.0), keys)
    most, total, acc = attend_split(
        queries, keys, values, block_table + request.to(tl.int64) * table_width, kv_head, oldest, end, split, num_splits,
        scale, tl.full([ROWS], NONE_YET, tl.float32), tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, DIM], tl.float32),
        KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, KEYS, STAGES, HAS_E4M3,
    )  # fmt: skip
    finish_split(
        out, token, most, total, acc, partials, counters, splits, split, num_splits,
        GROUP, KV_HEADS, HEAD_DIM, DIM, ROWS, MOST_SPLITS,
    )  # fmt: skip


@triton.jit
def splits_of(oldest, end, splits, least_tiles, KEYS: tl.constexpr):
    """Among how many of `splits` programs the keys [oldest, end) are split: 1 at least, also of no keys."""
    num_tiles = tl.cdiv(end, KEYS) - oldest // KEYS
    return tl.minimum(splits, tl.maximum(1, num_tiles // least_tiles))


@triton.jit
def head_places(
    token,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
):
    """This program's KV head, and where its heads of a token are in a tensor [T, heads × head_dim]: [ROWS, DIM], and which of
    these there are."""
    HEAD_TILES: tl.constexpr = (GROUP + ROWS - 1) // ROWS
    kv_head = tl.program_id(1) // HEAD_TILES
    heads = tl.program_id(1) % HEAD_TILES * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)[None, :]
    at = (token.to(tl.int64) * KV_HEADS + kv_head) * GROUP + heads
    return kv_head, at[:, None] * HEAD_DIM + dims, (heads < GROUP)[:, None] & (dims < HEAD_DIM)


@triton.jit
def attend_split(
    queries,
    keys,
    values,
    table,
    kv_head,
    oldest,
    end,
    split,
    num_splits,
    scale,
    most,
    total,
    acc,
    KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """`attend` over one split of the keys [oldest, end). Splits are whole tiles, and their numbers differ by one at most."""
    first = oldest // KEYS
    num_tiles = tl.cdiv(end, KEYS) - first
    begin, stop = first + num_tiles * split // num_splits, first + num_tiles * (split + 1) // num_splits
    for tile in tl.range(begin, stop, num_stages=STAGES):
        keys_at = tile * KEYS + tl.arange(0, KEYS)
        is_held = (keys_at >= oldest) & (keys_at < end)
        k = cached_tile(
            keys, table, kv_head, keys_at, is_held, queries.dtype,
            True, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, HAS_E4M3,
        )  # fmt: skip
        v = cached_tile(
            values, table, kv_head, keys_at, is_held, queries.dtype,
            True, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, HAS_E4M3,
        )  # fmt: skip
        most, total, acc = attend(queries, k, v, is_held[None, :], scale, most, total, acc, True)
    return most, total, acc


@triton.jit
def finish_split(
    out,
    token,
    most,
    total,
    acc,
    partials,
    counters,
    splits,
    split,
    num_splits,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    MOST_SPLITS: tl.constexpr,
):
    """Write this split's result; or, where there are others, leave it, and let the one that comes last combine them all: a
    second kernel for that would take longer to start than to run."""
    kv_head, places, inside = head_places(token, GROUP, KV_HEADS, HEAD_DIM, DIM, ROWS)
    if num_splits == 1:
        tl.store(out + places, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)
    else:
        # Parts lie by (unit, split, head): acc [HEAD_DIM] each, and behind all of those most and total.
        HEADS: tl.constexpr = min(ROWS, GROUP)
        unit = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        extremes = partials + tl.num_programs(2) * tl.num_programs(1) * splits * (HEADS * HEAD_DIM)
        rows, dims = tl.arange(0, ROWS), tl.arange(0, DIM)
        slots = (unit * splits + split) * HEADS + rows
        tl.store(partials + slots[:, None] * HEAD_DIM + dims[None, :], acc, mask=inside & (rows < HEADS)[:, None])
        tl.store(extremes + 2 * slots, most, mask=rows < HEADS)
        tl.store(extremes + 2 * slots + 1, total, mask=rows < HEADS)
        tl.debug_barrier()  # each thread's stores come before the one thread's atomic
        if tl.atomic_add(counters + unit, 1, sem="acq_rel", scope="gpu") == num_splits - 1:
            tl.store(counters + unit, 0)
            first_head = tl.program_id(1) % ((GROUP + ROWS - 1) // ROWS) * ROWS
            out_heads = out + ((token.to(tl.int64) * KV_HEADS + kv_head) * GROUP + first_head) * HEAD_DIM
            others = tl.arange(0, MOST_SPLITS)
            is_one = others < num_splits
            # One head at a time, the next one's parts on their way meanwhile. All are read past the first-level cache.
            for head in tl.range(0, tl.minimum(HEADS, GROUP - first_head), num_stages=STAGES_OF_PARTS):
                parts = (unit * splits + others) * HEADS + head
                tops = tl.load(extremes + 2 * parts, mask=is_one, other=NONE_YET, cache_modifier=".cg")
                sums = tl.load(extremes + 2 * parts + 1, mask=is_one, other=0.0, cache_modifier=".cg")
                part = tl.load(
                    partials + parts[:, None] * HEAD_DIM + dims[None, :],
                    mask=is_one[:, None] & (dims < HEAD_DIM)[None, :],
                    other=0.0,
                    cache_modifier=".cg",
                )
                shares = tl.exp2(tops - tl.max(tops, 0))
                result = tl.sum(part * shares[:, None], 0) / tl.sum(sums * shares, 0)
                tl.store(out_heads + head * HEAD_DIM + dims, result.to(out.dtype.element_ty), mask=dims < HEAD_DIM)
