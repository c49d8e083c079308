"""Rotation, the way into the paged cache, and attention of the native program, against numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pagoda import _native
from tests.native.programs import BLOCK_SIZE, Float32, SmallProgram, bf16, step

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 32
WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM
FREQUENCIES = (10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)).astype(np.float32)
GAIN_Q, GAIN_K = np.linspace(0.5, 2, HEAD_DIM, dtype=np.float32), np.linspace(1, 3, HEAD_DIM, dtype=np.float32)


class AttentionProgram(SmallProgram):
    """One layer: qkv of token t is row `input_ids[t]` of a table; then rotation, cache and attention."""

    def __init__(self, threads: _native.Threads, table: Float32, *, window: int = 0, q_norm: bool = False) -> None:
        super().__init__(threads, layers=[(KV_HEADS, HEAD_DIM)], max_tokens=640)
        self.q, self.out = self.tensor(HEADS * HEAD_DIM), self.tensor(HEADS * HEAD_DIM, "f32", "bf16", "q8")
        rope = self.native.rope(FREQUENCIES)
        gains = (GAIN_Q, GAIN_K, 1e-6) if q_norm else ()
        self.native.rope_and_store_kv(self.q, self.input(threads, table), 0, HEADS, rope, *gains)
        self.native.paged_attention(self.out, self.q, 0, HEADS, HEAD_DIM**-0.5, window)


def qkv_table(rows: int) -> Float32:
    return np.random.default_rng(7).standard_normal((rows, WIDTH)).astype(np.float32)


def rotated(heads: Float32, positions: npt.NDArray[np.int64], gain: Float32 | None = None) -> Float32:
    """heads [T, n, HEAD_DIM]."""
    if gain is not None:
        heads = heads / np.sqrt((heads**2).mean(axis=2, keepdims=True) + np.float32(1e-6)) * gain
    angles = (positions.astype(np.float32)[:, None] * FREQUENCIES)[:, None, :].astype(np.float64)
    x, y = np.split(heads, 2, axis=2)
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return np.concatenate([x * cosine - y * sine, y * cosine + x * sine], axis=2)


def attended(q: Float32, k: Float32, v: Float32, start: int, window: int) -> npt.NDArray[np.float64]:
    """One request's queries [T, HEADS, HEAD_DIM] over its keys and values [N, KV_HEADS, HEAD_DIM]."""
    keys, values = (np.repeat(x, HEADS // KV_HEADS, axis=1).astype(np.float64) for x in (k, v))
    scores = np.einsum("thd,nhd->htn", q.astype(np.float64), keys) * HEAD_DIM**-0.5
    own, other = start + np.arange(len(q))[:, None], np.arange(len(k))[None, :]
    hidden = (other > own) | (other <= own - window if window else False)
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(np.einsum("htn,nhd->thd", weights / weights.sum(axis=2, keepdims=True), values))


@pytest.mark.parametrize("q_norm", [False, True])
def test_rope_and_the_way_into_the_cache(threads: _native.Threads, q_norm: bool) -> None:
    requests = [(0, 20), (17, 3)]
    table = qkv_table(23)
    program = AttentionProgram(threads, table, q_norm=q_norm)
    program.run(requests)
    batch = step(requests)
    heads = table.reshape(23, -1, HEAD_DIM)
    expected = rotated(heads[:, :HEADS], batch["positions"], GAIN_Q if q_norm else None)
    assert np.abs(program.native.read(program.q, 23).reshape(expected.shape) - expected).max() < 4e-6
    keys = rotated(heads[:, HEADS:-KV_HEADS], batch["positions"], GAIN_K if q_norm else None)
    for token, slot in enumerate(batch["slot_mapping"]):
        block, offset = divmod(int(slot), BLOCK_SIZE)
        stored = program.cache.keys(0, block)[offset]
        assert np.all(np.abs(stored - keys[token]) <= np.abs(keys[token]) * 2**-8 + 4e-6)
        assert np.array_equal(program.cache.values(0, block)[offset], bf16(heads[token, -KV_HEADS:].copy()))


def test_new_blocks_are_zeroed(threads: _native.Threads) -> None:
    program = AttentionProgram(threads, qkv_table(40))
    program.run([(0, 32)])
    block = int(step([(0, 32)])["block_table"][0, 1])
    assert program.cache.keys(0, block).all()
    program.run([(0, 1)], new_blocks=np.array([block], np.int64))
    assert not program.cache.keys(0, block).any()
    assert not program.cache.values(0, block).any()


def fill(program: AttentionProgram, requests: list[tuple[int, int]]) -> None:
    """Computes in chunks of 64 what the requests say is in the cache."""
    whole = step(requests)
    for first in range(0, max(computed for computed, _ in requests), 64):
        chunk = [(min(first, computed), min(64, max(0, computed - first))) for computed, _ in requests]
        slots = [
            whole["block_table"][s, position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
            for s, (computed, count) in enumerate(chunk)
            for position in range(computed, computed + count)
        ]
        program.run(
            chunk,
            slot_mapping=np.array(slots, np.int64),
            block_table=whole["block_table"],
            new_blocks=np.array([], np.int64),
        )


@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize(
    "requests",
    [[(0, 1)], [(0, 70), (100, 1), (255, 2), (0, 16)], [(600, 1)], [(300, 3)], [(0, 600)]],
    ids=["first token", "mixed", "one long", "a few at the end", "long prompt"],
)
def test_attention(threads: _native.Threads, requests: list[tuple[int, int]], window: int) -> None:
    """Against float64 over the very K and V of the cache. Scores and weights are taken in bf16, so that an error is at
    most 2⁻⁷ of the largest value."""
    rows = sum(count for _, count in requests)
    program = AttentionProgram(threads, qkv_table(sum(map(sum, requests))), window=window)
    fill(program, requests)
    program.run(requests)
    out, q = program.native.read(program.out, rows), program.native.read(program.q, rows)
    batch, row = step(requests), 0
    for s, (computed, count) in enumerate(requests):
        blocks = [int(block) for block in batch["block_table"][s, : -(-(computed + count) // BLOCK_SIZE)]]
        k = np.concatenate([program.cache.keys(0, block) for block in blocks])[: computed + count]
        v = np.concatenate([program.cache.values(0, block) for block in blocks])[: computed + count]
        queries = bf16(q[row : row + count].copy()).reshape(count, HEADS, HEAD_DIM)
        expected = attended(queries, k, v, computed, window).reshape(count, -1)
        assert np.abs(out[row : row + count] - expected).max() <= 2**-7 * np.abs(v).max()
        row += count
    assert np.array_equal(program.native.read(program.out, rows, "bf16"), bf16(out))
