"""Attention over the paged cache, for steps in which requests compute any number of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.attention_tiles import NONE_YET, as_factor, attend, cached_tile, padded_dim
from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.fp8 import as_stored
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.split_attention import single_token_attention
from pagoda.ops.cuda.step import QUERY_TILE, CudaStep
from pagoda.planning.model_spec import AttentionSpec


def paged_attention(
    q: torch.Tensor,
    step: CudaStep,
    kv: LayerKV,
    spec: AttentionSpec,
    *,
    out: torch.Tensor,
    machine: Machine,
) -> None:
    """out [T, heads × head_dim]: causal attention of each token's q over its own request's K and V, read from the cache;
    with a window over the last `window` positions only. Softmax in float32.

    A request's tokens have consecutive positions, up to the end of what it has in the cache.

    On a deterministic machine a token's result is the same bits however its request was cut into steps and whatever else is
    in the step: keys are taken in tiles that begin at multiples of the tile's size, from the oldest to the newest, by one loop;
    further tiles, which other tokens of a query tile need, leave it as it is.
    """
    num_wide = len(step.query_tiles) if machine.is_deterministic else step.num_wide_tiles
    wide, single = step.query_tiles[:num_wide], step.query_tiles[num_wide:]
    if len(wide):
        shape = tile_shape(spec.head_dim, q.dtype, machine)
        group = spec.num_heads // spec.num_kv_heads
        parts = QUERY_TILE * group // shape.rows
        _attention_kernel[(spec.num_kv_heads * parts, len(wide))](
            q,
            as_stored(kv.keys),
            as_stored(kv.values),
            out,
            wide,
            step.query_start_loc,
            step.seq_lens,
            step.block_table,
            step.block_table.stride(0),
            spec.scale * math.log2(math.e),
            GROUP=group,
            KV_HEADS=spec.num_kv_heads,
            HEAD_DIM=spec.head_dim,
            DIM=padded_dim(spec.head_dim),
            BLOCK_SIZE=kv.keys.shape[2],
            WINDOW=spec.window or 0,
            QUERY_TILE=QUERY_TILE,
            ROWS=shape.rows,
            KEYS=shape.keys,
            STAGES=STAGES,
            ONE_LOOP=machine.is_deterministic,
            HAS_E4M3=machine.has_e4m3,
            num_warps=shape.num_warps,
        )
    if len(single):
        single_token_attention(q, step, single, kv, spec, out=out, machine=machine)


# Of the loop over keys: where Triton pipelines loads whose places are loaded themselves, this is one tile of K and V on its way
# while another is worked on, and its part of the block table one tile ahead of that; with 3, a tile is asked for when the one
# before is done.
STAGES = 5


@dataclass(frozen=True, slots=True)
class TileShape:
    """rows: of queries, a row for each token and head that shares K and V. keys: at once."""

    rows: int
    keys: int
    num_warps: int


def tile_shape(head_dim: int, dtype: torch.dtype, machine: Machine) -> TileShape:
    """The largest that spill no registers and fit the shared memory.

    A deterministic machine takes 64 rows, the fewest that sm_90's matrix units take at once: as single tokens have tiles of
    the same shape there, most of what a larger one computes would be thrown away.
    """
    is_small = padded_dim(head_dim) <= 128
    if dtype == torch.float32:  # its products take no matrix units
        return TileShape(16, 32 if is_small else 16, 8)
    if machine.is_deterministic:
        return TileShape(64, 32, 4) if is_small else TileShape(64, 16, 8)
    if machine.capability[0] in (9, 10):  # 227 KB of shared memory
        return TileShape(128, 64 if is_small else 32, 8)
    return TileShape(128, 32, 8) if is_small else TileShape(64, 16, 8)


@triton.jit
def _attention_kernel(
    q,
    keys,
    values,
    out,
    query_tiles,
    query_start_loc,
    seq_lens,
    block_table,
    table_width,
    scale,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    QUERY_TILE: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    ONE_LOOP: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """One program: ROWS rows of a query tile and KV head. Row r of a query tile is token r // GROUP and head r % GROUP of those
    that share this K and V, so that K and V are read once for all of them."""
    PARTS: tl.constexpr = QUERY_TILE * GROUP // ROWS
    kv_head, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    request = tl.load(query_tiles + 2 * tl.program_id(1))
    first_token = tl.load(query_tiles + 2 * tl.program_id(1) + 1)
    end_token = tl.load(query_start_loc + request + 1)
    count = tl.minimum(QUERY_TILE, end_token - first_token)
    first_row = part * ROWS
    if first_row >= count * GROUP:
        return

    rows = first_row + tl.arange(0, ROWS)
    tokens, heads = rows // GROUP, rows % GROUP
    dims = tl.arange(0, DIM)[None, :]
    inside = (tokens < count)[:, None] & (dims < HEAD_DIM)
    # int64: tokens × heads × head_dim passes 2^31.
    at = ((first_token + tokens).to(tl.int64) * KV_HEADS + kv_head) * GROUP + heads
    places = at[:, None] * HEAD_DIM + dims
    queries = as_factor(tl.load(q + places, mask=inside, other=0.0), keys)

    start = tl.load(seq_lens + request) - end_token + first_token  # position of the tile's first token
    oldest_row = start + first_row // GROUP
    newest_row = start + tl.minimum(count - 1, (first_row + ROWS - 1) // GROUP)
    # Rows beyond the tile's tokens repeat the last, so that they see something.
    positions = tl.minimum(start + tokens, newest_row)

    # Keys [first_key, end_key) are seen by some row, and of those [first_whole, end_whole) by every row.
    end_key = newest_row + 1
    end_whole = (oldest_row + 1) // KEYS * KEYS
    first_key = 0
    first_whole = 0
    if WINDOW:
        first_key = tl.maximum(0, oldest_row - WINDOW + 1)
        first_whole = tl.cdiv(tl.maximum(0, newest_row - WINDOW + 1), KEYS) * KEYS
        end_whole = tl.maximum(end_whole, first_whole)  # a small window may have no such keys
    begin = first_key // KEYS * KEYS

    table = block_table + request.to(tl.int64) * table_width
    most = tl.full([ROWS], NONE_YET, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    if not ONE_LOOP:
        if WINDOW:
            most, total, acc = _over_keys(
                queries, keys, values, table, kv_head, positions, begin, tl.minimum(first_whole, end_key),
                first_key, end_key, scale, most, total, acc,
                True, WINDOW, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, KEYS, STAGES, HAS_E4M3,
            )  # fmt: skip
        most, total, acc = _over_keys(
            queries, keys, values, table, kv_head, positions, first_whole, end_whole,
            first_key, end_key, scale, most, total, acc,
            False, WINDOW, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, KEYS, STAGES, HAS_E4M3,
        )  # fmt: skip
        begin = end_whole
    most, total, acc = _over_keys(
        queries, keys, values, table, kv_head, positions, begin, end_key,
        first_key, end_key, scale, most, total, acc,
        True, WINDOW, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, KEYS, STAGES, HAS_E4M3,
    )  # fmt: skip
    tl.store(out + places, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _over_keys(
    queries,
    keys,
    values,
    table,
    kv_head,
    positions,
    begin,
    end,
    first_key,
    end_key,
    scale,
    most,
    total,
    acc,
    MASKED: tl.constexpr,
    WINDOW: tl.constexpr,
    KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """`attend` over the tiles of keys from `begin`, a multiple of KEYS, on to `end`. Without MASKED all of them are seen by all
    rows; a loop of its own for those spares three instructions a score."""
    for tile in tl.range(begin, end, KEYS, num_stages=STAGES):
        keys_at = tile + tl.arange(0, KEYS)
        is_held = (keys_at >= first_key) & (keys_at < end_key)
        is_seen = keys_at[None, :] <= positions[:, None]
        if WINDOW:
            is_seen &= keys_at[None, :] > positions[:, None] - WINDOW
        k = cached_tile(
            keys, table, kv_head, keys_at, is_held, queries.dtype,
            MASKED, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, HAS_E4M3,
        )  # fmt: skip
        v = cached_tile(
            values, table, kv_head, keys_at, is_held, queries.dtype,
            MASKED, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM, HAS_E4M3,
        )  # fmt: skip
        most, total, acc = attend(queries, k, v, is_seen, scale, most, total, acc, MASKED)
    return most, total, acc
