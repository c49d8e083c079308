"""The native sampler against the torch sampler, whose meaning it shares, on every instruction set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from pagoda import _native
from pagoda.sampling import torch_sampler
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.native_sampler import broken_rows, sample, token_logprobs
from pagoda.sampling.state import SamplingState
from pagoda.sampling.torch_logprobs import logprob_tensors
from tests.sampling.requests import new_state
from tests.soak import soak_count

CROWDS = soak_count(1200)
SHAPES = [(5, 10), (4, 300), (3, 4000), (2, 33_000)]


@pytest.fixture(params=_native.instruction_sets(), scope="module")
def threads(request: pytest.FixtureRequest) -> Iterator[_native.Threads]:
    workers = _native.Threads(2, request.param)
    yield workers
    workers.close()


def any_state(rng: np.random.Generator, vocab_size: int) -> SamplingState:
    pick = lambda *values: values[rng.integers(len(values))]  # noqa: E731
    some = [int(token_id) for token_id in rng.integers(0, vocab_size, 6)]
    return new_state(
        vocab_size,
        prompt=some[:4],
        output=some[2:],
        seed=int(rng.integers(1 << 62)),
        end_token_ids=frozenset(some[:2]),
        temperature=pick(0.0, 0.01, 0.5, 1.0, 1.0, 2.0, 100.0),
        top_k=pick(0, 0, 0, 1, 2, 40, 600, 10**6),
        top_p=pick(1e-9, 0.3, 0.8, 0.95, 1.0, 1.0),
        min_p=pick(0.0, 0.0, 1e-6, 0.05, 0.5, 1.0),
        presence_penalty=pick(0.0, 0.0, 0.0, 1.5),
        frequency_penalty=pick(0.0, 0.0, 0.0, -2.0),
        repetition_penalty=pick(1.0, 1.0, 1.0, 1.3, 0.5),
        logit_bias=pick({}, {}, {some[5]: 3.0, some[0]: -1.5}),
        min_tokens=pick(0, 0, 9),
    )


def any_logits(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    logits = rng.normal(0, rng.choice([0.05, 1.0, 8.0]), (rows, columns))
    if rng.random() < 0.5:  # equal tokens
        logits = np.round(logits * 8) / 8
    if rng.random() < 0.3:  # tokens that cannot be chosen
        logits[rng.random((rows, columns)) < 0.5] = -np.inf
        logits[:, 3] = 0.0
    return logits.astype(np.float32)


def choices(
    threads: _native.Threads, logits: np.ndarray, states: Sequence[SamplingState], vocab_size: int
) -> list[int]:
    token_ids, broken = sample(threads, logits, SamplingBatch.of(states), vocab_size)
    assert not broken.any()
    return token_ids.tolist()


def test_the_same_tokens_as_the_torch_sampler(threads: _native.Threads) -> None:
    for case in range(CROWDS):
        rng = np.random.default_rng(case)
        rows, vocab_size = SHAPES[case % len(SHAPES)]
        logits = any_logits(rng, rows, vocab_size + case % 3)
        logits[:, vocab_size:] = np.nan  # padding, which is not looked at
        before = logits.copy()
        batch = SamplingBatch.of([any_state(rng, vocab_size) for _ in range(rows)])
        token_ids, broken = sample(threads, logits, batch, vocab_size)
        expected, _ = torch_sampler.sample(torch.from_numpy(logits), batch, vocab_size)
        assert token_ids.tolist() == expected.tolist(), case
        assert not broken.any()
        np.testing.assert_array_equal(logits, before)


def test_alone_and_in_a_crowd_the_same_token(threads: _native.Threads) -> None:
    rng = np.random.default_rng(3)
    logits, states = any_logits(rng, 12, 20_000), [any_state(rng, 20_000) for _ in range(12)]
    crowd = choices(threads, logits, states, 20_000)
    assert crowd == [choices(threads, logits[row : row + 1], [states[row]], 20_000)[0] for row in range(12)]
    single = _native.Threads(1, threads.instruction_set)
    assert crowd == choices(single, logits, states, 20_000)
    single.close()


@pytest.mark.parametrize("top_p", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("vocab_size", [10, 1024, 20_000])
def test_a_number_on_the_edge_of_two_tokens_chooses_the_second(
    threads: _native.Threads, vocab_size: int, top_p: float
) -> None:
    left = math.ceil(vocab_size * top_p)
    numbers = np.array([0.0, 0.2, 0.5, np.nextafter(1.0, 0.0)])
    batch = dataclasses.replace(SamplingBatch.of([new_state(vocab_size, top_p=top_p)] * 4), uniforms=numbers)
    token_ids, _ = sample(threads, np.zeros((4, vocab_size), np.float32), batch, vocab_size)
    assert token_ids.tolist() == [0, math.floor(left * 0.2), math.floor(left * 0.5), left - 1]


def test_greedy_takes_the_lowest_id_among_equals(threads: _native.Threads) -> None:
    logits = np.zeros((4, 20_000), np.float32)
    logits[1, [19_999, 777, 3000]] = 5.0
    logits[2, 1] = -0.0
    logits[3, [5, 19_000]] = 1e-45, 3e-45  # the smallest numbers are numbers too
    assert choices(threads, logits, [new_state(20_000, temperature=0.0)] * 4, 20_000) == [0, 777, 0, 19_000]


@pytest.mark.parametrize("temperature", [5e-324, 1e-40, 100.0])
def test_temperatures_at_the_ends_of_their_range(threads: _native.Threads, temperature: float) -> None:
    logits = np.array([[1.0, 3e38, -3e38, 2.0, 3e38, 0.0], [1e-45, 3e-45, 0.0, 1e-40, 0.0, -1e-45]], np.float32)
    batch = SamplingBatch.of([new_state(6, temperature=temperature, seed=seed) for seed in range(2)])
    expected, _ = torch_sampler.sample(torch.from_numpy(logits), batch, 6)
    assert sample(threads, logits, batch, 6)[0].tolist() == expected.tolist()


def test_everything_barred_still_has_an_answer(threads: _native.Threads) -> None:
    logits = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    barred: dict[str, Any] = {"end_token_ids": frozenset({0, 1, 2}), "min_tokens": 5}
    states = [new_state(3, temperature=0.0, **barred), new_state(3, **barred)]
    assert choices(threads, logits, states, 3) == [0, 0]


def test_a_penalty_that_overflows_stays_a_number(threads: _native.Threads) -> None:
    logits = np.array([[3e38, 1.0, 0.0]], np.float32)
    assert choices(threads, logits, [new_state(3, prompt=[0], repetition_penalty=0.01)], 3) == [0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_row_is_marked_and_the_others_are_not_touched(threads: _native.Threads, bad: float) -> None:
    logits = np.random.default_rng(3).standard_normal((6, 600)).astype(np.float32)
    states = [new_state(600, seed=row, temperature=row % 2 * 1.0, logit_bias={17: -50.0}) for row in range(4)]
    states += [new_state(600, seed=row) for row in range(2)]
    right = choices(threads, logits, states, 600)
    logits[1, 17], logits[2, 599], logits[4] = bad, bad, -np.inf
    token_ids, broken = sample(threads, logits, SamplingBatch.of(states), 600)
    assert broken.tolist() == broken_rows(logits, 600).tolist() == [False, True, True, False, True, False]
    assert token_ids[[0, 3, 5]].tolist() == [right[row] for row in (0, 3, 5)]
    assert ((token_ids >= 0) & (token_ids < 600)).all()


@pytest.mark.parametrize("vocab_size", [5, 700, 20_000])
def test_log_probabilities_are_those_of_torch(threads: _native.Threads, vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    logits = np.round(rng.normal(0, 4, (6, vocab_size + 2)) * 8).astype(np.float32) / 8
    logits[:, vocab_size:] = np.nan
    logits[4, 1:4] = -np.inf
    rows = np.array([5, 0, 0, 4, 4, 2])
    token_ids = np.concatenate([rng.integers(0, vocab_size, 4), [2, logits[2, :vocab_size].argmax()]])
    for alternatives in (0, 1, 20):
        got = token_logprobs(threads, logits, vocab_size, rows, token_ids, alternatives)
        tensors = (torch.from_numpy(each) for each in (logits, rows, token_ids))
        expected = logprob_tensors(*tensors, alternatives, vocab_size).to_host()
        assert [each.token_ids for each in got] == [each.token_ids for each in expected]
        assert [each.ranks for each in got] == [each.ranks for each in expected]
        for own, right in zip(got, expected, strict=True):
            assert own.logprobs == pytest.approx(right.logprobs, abs=1e-5)


def test_what_lies_outside_is_refused(threads: _native.Threads) -> None:
    logits, one = np.zeros((2, 8), np.float32), np.array([1])
    with pytest.raises(IndexError, match="rows has 2, must be below 2"):
        _native.logprobs(threads, logits, 8, one + 1, one, 0)
    with pytest.raises(IndexError, match="token_ids has 8, must be below 8"):
        _native.logprobs(threads, logits, 8, one, one + 7, 0)
    with pytest.raises(ValueError, match="vocab_size is 9"):
        _native.logprobs(threads, logits, 9, one, one, 0)
    most = 1 << 22
    with pytest.raises(ValueError, match="vocab_size is 4194304, must be at most 4194303"):
        _native.logprobs(threads, np.zeros((2, most), np.float32), most, one, one, 0)
    batch = SamplingBatch.of([new_state(8)] * 3)
    with pytest.raises(IndexError, match="random_rows has 2, must be below 2"):
        sample(threads, logits, batch, 8)


def test_the_largest_vocabulary_may_be_flat(threads: _native.Threads) -> None:
    """So many of the largest weights still have a sum."""
    vocab_size = (1 << 22) - 1
    state = new_state(vocab_size, temperature=1.0, top_p=1.0, seed=3)
    batch = SamplingBatch.of([state])
    token_ids, broken = sample(threads, np.zeros((1, vocab_size), np.float32), batch, vocab_size)
    assert not broken[0]
    assert token_ids[0] == int(batch.uniforms[0] * vocab_size)
