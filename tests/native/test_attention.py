"""Attention over the paged cache: against float64 for many shapes, and bit for bit the same for any chunks and neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from pagoda import _native
from tests.native.programs import Float32, bf16, float_matrix, kv_codes

LENGTHS = (530, 3, 77)  # of three requests; the first needs three splits of the keys
STARTS = (0, *accumulate(LENGTHS))
SIDE_BY_SIDE = 40  # sequences of a step, at most
Chunk = tuple[int, int, int]  # request, tokens already computed, tokens now


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    window: int = 0

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


SHAPES = {
    "grouped": Shape(6, 2, 64, 16),
    "alone": Shape(2, 2, 128, 32),
    "window": Shape(7, 1, 64, 16, window=100),
    "narrow": Shape(5, 1, 20, 48, window=33),
    "only itself": Shape(2, 1, 6, 16, window=1),
    "many heads": Shape(9, 1, 80, 32),
    "many alone": Shape(40, 40, 20, 16, window=300),
}

# Where heads have a size that int8 does not take, bf16 only.
CASES = [
    pytest.param(shape, kv, id=f"{name}, {kv}")
    for name, shape in SHAPES.items()
    for kv in ("bf16", "int8")
    if kv == "bf16" or shape.head_dim % 4 == 0
]
by_case = pytest.mark.parametrize(("shape", "kv"), CASES)


class Attention:
    """q, k and v of a token are a row of the table; LENGTHS tell whose rows they are."""

    def __init__(self, threads: _native.Threads, shape: Shape, table: Float32, kv: str = "bf16") -> None:
        self.blocks = [-(-length // shape.block_size) for length in LENGTHS]
        self.cache = _native.KVCache([(shape.kv_heads, shape.head_dim)], sum(self.blocks) + 1, shape.block_size, kv)
        self.native = _native.Program(threads, self.cache, STARTS[-1], SIDE_BY_SIDE, 1, 1 << 26)
        self.shape = shape
        qkv, self.q, self.out = self._tensors(shape.width, *(shape.heads * shape.head_dim,) * 2)
        self.native.embed(qkv, float_matrix(threads, table), 1.0)
        self.native.rope_and_store_kv(self.q, qkv, 0, shape.heads)
        self.native.paged_attention(self.out, self.q, 0, shape.heads, shape.head_dim**-0.5, shape.window)

    def _tensors(self, *widths: int) -> list[int]:
        ends = accumulate((_native.form_bytes("f32", width, STARTS[-1]) for width in widths), initial=0)
        return [self.native.tensor(width, f32=end) for width, end in zip(widths, ends, strict=False)]

    def compute(self, steps: Iterable[Sequence[Chunk]]) -> Float32:
        """What attention gives for every token, [tokens, heads × head_dim]; zeros for those in no chunk."""
        found = np.zeros((STARTS[-1], self.shape.heads * self.shape.head_dim), np.float32)
        for chunks in steps:
            rows = self.run(chunks)
            found[rows] = self.native.read(self.out, len(rows))
        return found

    def run(self, chunks: Sequence[Chunk], new_blocks: Sequence[int] = ()) -> npt.NDArray[np.int64]:
        """One step; the rows of the table that it computes."""
        size = self.shape.block_size
        tables = np.split(np.random.default_rng(5).permutation(sum(self.blocks)), list(accumulate(self.blocks))[:-1])
        block_table = np.zeros((len(chunks), max(self.blocks)), np.int32)
        for line, (request, _, _) in zip(block_table, chunks, strict=True):
            line[: self.blocks[request]] = tables[request]
        positions = [np.arange(computed, computed + count) for _, computed, count in chunks]
        slots = [line[p // size] * size + p % size for line, p in zip(block_table, positions, strict=True)]
        rows = np.concatenate([STARTS[chunk[0]] + p for chunk, p in zip(chunks, positions, strict=True)])
        self.native.run(
            rows,
            np.concatenate(positions),
            np.concatenate(slots).astype(np.int64),
            np.cumsum([0, *(count for _, _, count in chunks)], dtype=np.int32),
            np.array([computed + count for _, computed, count in chunks], np.int32),
            block_table,
            np.zeros(0, np.int64),
            np.array(new_blocks, np.int64),
        )
        return rows


WHOLE: list[list[Chunk]] = [[(request, 0, length) for request, length in enumerate(LENGTHS)]]
ONE_BY_ONE: list[list[Chunk]] = [
    [(request, position, 1) for request, length in enumerate(LENGTHS) if position < length]
    for position in range(max(LENGTHS))
]
# Many tokens of a request in one step, each as a sequence of its own.
TOKENS = [(request, position, 1) for request, length in enumerate(LENGTHS) for position in range(length)]
SEPARATELY: list[list[Chunk]] = [TOKENS[i : i + SIDE_BY_SIDE] for i in range(0, len(TOKENS), SIDE_BY_SIDE)]


def random_steps(seed: int, most: int) -> list[list[Chunk]]:
    """Every request in chunks of up to `most` tokens, and not in every step."""
    random = np.random.default_rng(seed)
    computed = [0] * len(LENGTHS)
    steps = []
    while any(done < length for done, length in zip(computed, LENGTHS, strict=True)):
        chunks = []
        for request, length in enumerate(LENGTHS):
            count = min(length - computed[request], int(random.integers(0, most + 1)))
            if count:
                chunks.append((request, computed[request], count))
                computed[request] += count
        if chunks:
            steps.append(chunks)
    return steps


def random_table(shape: Shape) -> Float32:
    return np.random.default_rng(3).standard_normal((STARTS[-1], shape.width), np.float32)


def split(shape: Shape, table: Float32, kv: str) -> tuple[npt.NDArray[np.float64], ...]:
    """q, k and v as the cache has them, each [heads, tokens, head_dim] with a K and V for every query head; and of each
    value the magnitude of its codes' step, [heads, tokens]."""
    heads = table.reshape(len(table), -1, shape.head_dim).transpose(1, 0, 2)
    q, cached = heads[: shape.heads], heads[shape.heads :]
    if kv == "bf16":
        q, cached, steps = bf16(q.copy()), bf16(cached.copy()), np.zeros(cached.shape[:2])
    else:
        codes, scales = kv_codes(cached)
        cached, steps = codes.astype(np.float64) * scales[..., None], scales
    repeats = shape.heads // shape.kv_heads
    k, v, steps = (
        np.repeat(part, repeats, axis=0)
        for part in (cached[: shape.kv_heads], cached[shape.kv_heads :], steps[shape.kv_heads :])
    )
    return tuple(part.astype(np.float64) for part in (q, k, v, steps))


@by_case
def test_attention_equals_float64(threads: _native.Threads, shape: Shape, kv: str) -> None:
    """In bf16 up to 2⁻⁸ of what the values' magnitudes give, because weights are rounded to bf16, and 10⁻⁴ for the rest.

    In int8, q is rounded to within 1/65534 of its largest number, which moves a score by d and so weights by a share of 2d;
    and each weight times its value's scale to within 1/65534 of the largest of them.
    """
    table = random_table(shape)
    found = Attention(threads, shape, table, kv).compute(WHOLE).reshape(len(table), shape.heads, shape.head_dim)
    for first, end in pairwise(STARTS):
        q, k, v, steps = split(shape, table[first:end], kv)
        scores = q @ k.transpose(0, 2, 1) * shape.head_dim**-0.5
        distance = np.subtract.outer(np.arange(end - first), np.arange(end - first))
        scores[:, (distance < 0) | (distance >= (shape.window or end))] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        error = np.abs(found[first:end].transpose(1, 0, 2) - weights @ v)
        if kv == "bf16":
            bound = weights @ np.abs(v) * (2**-8 + 1e-4)
        else:
            moved = (
                np.abs(q).max(axis=2) / 65534 * np.abs(k).sum(axis=2).max(axis=1, keepdims=True) * shape.head_dim**-0.5
            )
            codes = np.divide(np.abs(v), steps[..., None], out=np.zeros_like(v), where=steps[..., None] > 0)
            largest = (weights * steps[:, None]).max(axis=2, keepdims=True)
            bound = weights @ np.abs(v) * (2 * moved[..., None] + 1e-4) + (weights > 0) @ codes * largest / 65534
        assert np.all(error <= bound)


@by_case
def test_chunks_and_neighbours_change_no_bit(threads: _native.Threads, shape: Shape, kv: str) -> None:
    table = random_table(shape)
    expected = Attention(threads, shape, table, kv).compute(WHOLE)
    for steps in (ONE_BY_ONE, SEPARATELY, random_steps(1, 9), random_steps(2, 200)):
        assert np.array_equal(Attention(threads, shape, table, kv).compute(steps), expected)
    alone = [[(0, first, min(100, LENGTHS[0] - first))] for first in range(0, LENGTHS[0], 100)]
    assert np.array_equal(Attention(threads, shape, table, kv).compute(alone)[: LENGTHS[0]], expected[: LENGTHS[0]])


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("position", [47, 300, 301])
@pytest.mark.parametrize("name", ["grouped", "window", "many alone"])
@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_a_broken_token_harms_only_those_that_see_it(
    threads: _native.Threads, kv: str, name: str, position: int, broken: float
) -> None:
    shape = SHAPES[name]
    table = random_table(shape)
    expected = Attention(threads, shape, table, kv).compute(WHOLE)
    table[position, -shape.kv_heads * shape.head_dim :] = broken
    found = Attention(threads, shape, table, kv).compute(WHOLE)
    harmed = np.zeros(len(table), bool)
    harmed[position : min(LENGTHS[0], position + (shape.window or LENGTHS[0]))] = True
    assert not np.isfinite(found[harmed]).any()
    assert np.array_equal(found[~harmed], expected[~harmed])
    for steps in (random_steps(4, 60), SEPARATELY):
        assert np.array_equal(Attention(threads, shape, table, kv).compute(steps), found, equal_nan=True)


@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_new_blocks_forget_what_broke_their_last_owner(threads: _native.Threads, kv: str) -> None:
    shape = SHAPES["grouped"]
    table = random_table(shape)
    expected = Attention(threads, shape, table, kv).compute(WHOLE)
    table = np.concatenate([table, np.full_like(table, np.nan)])
    attention = Attention(threads, shape, table, kv)
    for block in range(sum(attention.blocks)):
        slots = np.arange(block * 16, block * 16 + 16)
        attention.native.run(
            STARTS[-1] + slots % 16,
            slots % 16,
            slots,
            np.array([0, 16], np.int32),
            np.array([16], np.int32),
            np.full((1, 1), block, np.int32),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
        )
    assert np.isnan(attention.cache.keys(0, 0)).all()
    attention.run([(1, 0, 1)], new_blocks=range(sum(attention.blocks)))
    assert np.array_equal(attention.compute(random_steps(6, 40)), expected)


def test_one_score_far_above_the_others_takes_all(threads: _native.Threads) -> None:
    """The other weights are exactly 0, across splits as well."""
    shape = Shape(2, 1, 32, 16)
    table = random_table(shape)
    table[:, : 3 * 32] = 0
    table[:, : 2 * 32 : 32] = 1e4  # of each query its first number
    table[:, 2 * 32] = -1.0
    table[[20, 400], 2 * 32] = 1.0, 2.0
    found = Attention(threads, shape, table).compute(WHOLE)
    values = bf16(table[:, 3 * 32 :].copy())
    assert np.array_equal(found[20:400], np.tile(values[20], (380, 2)))
    assert np.array_equal(found[400 : LENGTHS[0]], np.tile(values[400], (130, 2)))
