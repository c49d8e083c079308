"""Paged attention against the naive one: mixed batches, windows, grouped queries, odd block tables, foreign NaNs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pagoda.ops.interface import AttentionLayer
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import Tile, TorchBatch, torch_batch, whole_groups
from pagoda.ops.reference_cache import KVCache
from pagoda.ops.reference_weights import TorchWeight
from pagoda.planning.model_spec import AttentionSpec, RopeSpec
from pagoda.runner.batch import Batch
from tests.kernels import naive
from tests.soak import soak_count

RANDOM_BATCHES = soak_count(400)
BOUND = 1e-5  # of values of ordinary size, in float32


@dataclass
class Case:
    """Requests (tokens already in the cache, tokens to compute) over a cache of which every other block is foreign."""

    requests: list[tuple[int, int]]
    spec: AttentionSpec
    block_size: int
    rng: np.random.Generator
    foreign: float = float("nan")
    tile: Tile = whole_groups
    widest_window: int | None = None

    def __post_init__(self) -> None:
        spec, owned = self.spec, [-(-(past + new) // self.block_size) for past, new in self.requests]
        ids = self.rng.permutation(sum(owned) + 3)
        self.tables = np.split(ids[: sum(owned)], np.cumsum(owned)[:-1])
        shape = (len(ids), self.block_size, spec.num_kv_heads, spec.head_dim)
        self.keys = np.full(shape, self.foreign)
        self.values = np.full(shape, self.foreign)
        for table, (past, _) in zip(self.tables, self.requests, strict=True):
            for array in (self.keys, self.values):
                array[table] = 0
                for position in range(past):
                    where = table[position // self.block_size], position % self.block_size
                    array[where] = self.rng.standard_normal((spec.num_kv_heads, spec.head_dim))
        total = sum(new for _, new in self.requests)
        self.qkv = self.rng.standard_normal((total, (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim))

    def batch(self) -> TorchBatch:
        positions = [np.arange(past, past + new) for past, new in self.requests]
        slots = [
            table[p // self.block_size] * self.block_size + p % self.block_size
            for table, p in zip(self.tables, positions, strict=True)
        ]
        block_table = np.zeros((len(self.tables), max(map(len, self.tables)) + 2), dtype=np.int32)
        for row, table in zip(block_table, self.tables, strict=True):
            row[: len(table)] = table
        counts = [new for _, new in self.requests]
        arrays = Batch(
            input_ids=np.zeros(sum(counts), dtype=np.int64),
            positions=np.concatenate(positions),
            slot_mapping=np.concatenate(slots).astype(np.int64),
            query_start_loc=np.cumsum([0, *counts]).astype(np.int32),
            seq_lens=np.array([past + new for past, new in self.requests], dtype=np.int32),
            block_table=block_table,
            logit_rows=np.zeros(0, dtype=np.int64),
            new_blocks=np.zeros(0, dtype=np.int64),
        )
        return torch_batch(arrays, self.block_size, torch.device("cpu"), self.tile, widest_window=self.widest_window)

    def run(self, layer: AttentionLayer[TorchWeight], dtype: torch.dtype = torch.float32) -> np.ndarray:
        cache = KVCache(
            self.block_size, (torch.from_numpy(self.keys).to(dtype),), (torch.from_numpy(self.values).to(dtype),)
        )
        ops, batch = TorchOps(cache), self.batch()
        q = ops.rope_and_store_kv(batch, torch.from_numpy(self.qkv).to(dtype), layer)
        return ops.paged_attention(batch, q, layer).double().numpy()

    def expected(self, q_gain: np.ndarray | None = None, k_gain: np.ndarray | None = None) -> np.ndarray:
        spec, outputs, start = self.spec, [], 0
        for table, (past, new) in zip(self.tables, self.requests, strict=True):
            heads = self.qkv[start : start + new].reshape(new, -1, spec.head_dim).copy()
            q, k, v = np.split(heads, [spec.num_heads, spec.num_heads + spec.num_kv_heads], axis=1)
            for x, gain in ((q, q_gain), (k, k_gain)):
                for row in range(new):
                    if gain is not None:
                        x[row] = naive.rms_norm(x[row], gain, 1e-6)
                    if spec.rope is not None:
                        x[row] = [naive.rotated(head, past + row, spec.rope) for head in x[row]]
            old_keys = self.keys[table].reshape(-1, spec.num_kv_heads, spec.head_dim)[:past]
            old_values = self.values[table].reshape(-1, spec.num_kv_heads, spec.head_dim)[:past]
            keys, values = np.concatenate([old_keys, k]), np.concatenate([old_values, v])
            outputs.append(naive.attention(q, keys, values, first=past, scale=spec.scale, window=spec.window))
            start += new
        return np.concatenate(outputs).reshape(start, -1)


def spec(
    heads: int = 4, kv_heads: int = 2, head_dim: int = 16, window: int | None = None, rope: RopeSpec | None = None
) -> AttentionSpec:
    return AttentionSpec(heads, kv_heads, head_dim, head_dim**-0.5, rope, window)


MIXED = [(37, 1), (0, 19), (5, 1), (16, 33), (0, 1), (300, 1), (15, 2), (31, 16)]


@pytest.mark.parametrize("window", [None, 1, 7, 16, 1000])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
def test_decode_and_prefill_chunks_in_one_step(heads: int, kv_heads: int, window: int | None) -> None:
    attention = spec(heads, kv_heads, window=window, rope=RopeSpec(16, 10_000.0))
    case = Case(MIXED, attention, 16, np.random.default_rng(heads * 10 + kv_heads))

    np.testing.assert_allclose(case.run(AttentionLayer(0, attention)), case.expected(), atol=BOUND)


@pytest.mark.parametrize(("rows", "queries"), [(1, 1), (1, 5), (2, 3), (3, 1000)])
def test_tiles_do_not_change_what_is_computed(rows: int, queries: int) -> None:
    attention = spec(window=7)
    tiled = Case([*MIXED, (40, 1), (2, 18)], attention, 16, np.random.default_rng(5), tile=lambda *_: (rows, queries))

    np.testing.assert_allclose(tiled.run(AttentionLayer(0, attention)), tiled.expected(), atol=BOUND)


@pytest.mark.parametrize("window", [1, 7, 16, 17, 40])
def test_blocks_that_no_window_of_a_step_reaches_may_be_anothers(window: int) -> None:
    attention = spec(window=window)
    case = Case(MIXED, attention, 16, np.random.default_rng(window), widest_window=window)
    expected, num_passed = case.expected(), 0
    for table, (past, _) in zip(case.tables, case.requests, strict=True):
        passed = table[: max(0, past - window + 1) // 16]
        case.keys[passed], case.values[passed] = np.nan, np.nan
        num_passed += len(passed)
    assert num_passed > 10

    np.testing.assert_allclose(case.run(AttentionLayer(0, attention)), expected, atol=BOUND)


@pytest.mark.parametrize("seed", range(RANDOM_BATCHES))
def test_random_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kv_heads, head_dim = int(rng.integers(1, 4)), 2 * int(rng.integers(1, 12))
    attention = spec(
        kv_heads * int(rng.integers(1, 4)),
        kv_heads,
        head_dim,
        window=None if rng.random() < 0.5 else int(rng.integers(1, 60)),
        rope=None if rng.random() < 0.3 else RopeSpec(2 * int(rng.integers(1, head_dim // 2 + 1)), 10_000.0, 2.0),
    )
    requests = [
        (int(rng.integers(0, 70)), 1 if rng.random() < 0.5 else int(rng.integers(1, 40)))
        for _ in range(int(rng.integers(1, 7)))
    ]
    case = Case(requests, attention, int(rng.choice([1, 3, 16])), rng)

    np.testing.assert_allclose(case.run(AttentionLayer(0, attention)), case.expected(), atol=BOUND)


def test_q_and_k_norm() -> None:
    rng = np.random.default_rng(3)
    attention = AttentionSpec(4, 2, 16, 0.3, RopeSpec(16, 10_000.0), qk_norm=True)
    q_gain, k_gain = rng.standard_normal(16), rng.standard_normal(16)
    gains = [TorchWeight(torch.from_numpy(gain).float()) for gain in (q_gain, k_gain)]
    case = Case(MIXED, attention, 16, rng)

    got = case.run(AttentionLayer(0, attention, *gains, norm_eps=1e-6))

    np.testing.assert_allclose(got, case.expected(q_gain, k_gain), atol=BOUND)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 5e-2), (torch.float16, 5e-3)], ids=str)
def test_half_precision(dtype: torch.dtype, bound: float) -> None:
    case = Case(MIXED, spec(), 16, np.random.default_rng(8))

    np.testing.assert_allclose(case.run(AttentionLayer(0, case.spec), dtype), case.expected(), atol=bound)


def test_only_the_steps_own_slots_are_written() -> None:
    attention = spec()
    case = Case(MIXED, attention, 16, np.random.default_rng(5), foreign=7.0)
    cache = KVCache(16, (torch.from_numpy(case.keys).float(),), (torch.from_numpy(case.values).float(),))
    before = [tensor.clone() for tensor in (cache.keys[0], cache.values[0])]
    batch = case.batch()

    TorchOps(cache).rope_and_store_kv(batch, torch.from_numpy(case.qkv).float(), AttentionLayer(0, attention))

    untouched = torch.ones(before[0].shape[0] * 16, dtype=torch.bool)
    untouched[batch.slot_mapping] = False
    for old, new in zip(before, (cache.keys[0], cache.values[0]), strict=True):
        assert torch.equal(old.flatten(0, 1)[untouched], new.flatten(0, 1)[untouched])
        assert not torch.equal(old.flatten(0, 1)[~untouched], new.flatten(0, 1)[~untouched])


def test_a_neighbours_nan_stays_with_the_neighbour() -> None:
    case = Case(MIXED, spec(), 16, np.random.default_rng(6))
    case.qkv[0] = np.nan

    got = case.run(AttentionLayer(0, case.spec))

    assert np.isnan(got[0]).all()
    np.testing.assert_allclose(got[1:], case.expected()[1:], atol=BOUND)


def test_requests_of_like_size_share_an_operation() -> None:
    decodes = [(past, 1) for past in range(30, 62)]
    case = Case([*decodes, (0, 20), (0, 30)], spec(), 16, np.random.default_rng(7))

    assert [group.num_requests for group in case.batch().groups] == [32, 2]


def test_zeroed_blocks() -> None:
    cache = KVCache(2, (torch.full((3, 2, 1, 4), torch.nan),), (torch.full((3, 2, 1, 4), torch.inf),))

    cache.zero_blocks(torch.tensor([0, 2]))

    for tensor in (*cache.keys, *cache.values):
        assert not tensor[[0, 2]].any()
        assert not tensor[1].isfinite().any()
