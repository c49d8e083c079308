"""The torch sampler against its plain meaning, and what it promises of each row."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.step import NewRequest
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.random import uniforms
from pagoda.sampling.state import SamplingState
from pagoda.sampling.torch_sampler import line, sample
from tests.sampling.naive import naive_intervals
from tests.sampling.requests import choose, new_request, new_state
from tests.soak import soak_count

PROPERTY_EXAMPLES = soak_count(4000)
DRAWS = 4000

sampling_params = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.01, 0.5, 1.0, 2.0, 50.0]),
        "top_k": st.sampled_from([0, 1, 2, 5, 20, 600, 10**6]),
        "top_p": st.sampled_from([1e-9, 0.3, 0.8, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
        "presence_penalty": st.sampled_from([0.0, 0.0, 1.5, -1.5]),
        "frequency_penalty": st.sampled_from([0.0, 0.0, 0.75, -2.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3, 0.5]),
        "logit_bias": st.dictionaries(st.integers(0, 9), st.sampled_from([-100.0, -1.5, 3.0]), max_size=3),
        "min_tokens": st.sampled_from([0, 2, 4]),
    }
)


@st.composite
def requests(draw: st.DrawFn) -> NewRequest:
    ids = st.lists(st.integers(0, 9), max_size=6)
    return new_request(
        prompt=[0, *draw(ids)],
        output=draw(ids),
        seed=draw(st.integers(0, (1 << 63) - 1)),
        choice=draw(st.integers(0, 5)),
        end_token_ids=frozenset({3, 8}),
        **draw(sampling_params),
    )


@settings(max_examples=PROPERTY_EXAMPLES, deadline=None, derandomize=True)
@given(
    crowd=st.lists(requests(), min_size=1, max_size=5), vocab_size=st.sampled_from([10, 700]), key=st.integers(0, 99)
)
def test_every_row_of_a_crowd_is_what_the_naive_sampler_says(
    crowd: list[NewRequest], vocab_size: int, key: int
) -> None:
    # Multiples of 1/8 make ties, and small numbers a flat line that goes beyond its sorted beginning.
    scale = 8 if key % 2 else 0.125
    logits = np.round(np.random.default_rng(key).normal(0, scale, (len(crowd), vocab_size)) * 8) / 8
    logits = logits.astype(np.float32)
    chosen = choose(torch.from_numpy(logits), [SamplingState(request, vocab_size) for request in crowd])
    for row, request in enumerate(crowd):
        number = _uniform(request)
        allowed = {
            token_id
            for token_id, begin, end in naive_intervals(logits[row], request)
            if begin - 1e-6 <= number < end + 1e-6
        }
        assert chosen[row] in allowed


@settings(max_examples=PROPERTY_EXAMPLES // 4, deadline=None, derandomize=True)
@given(crowd=st.lists(requests(), min_size=2, max_size=8), key=st.integers(0, 99))
def test_alone_and_in_a_crowd_the_same_token(crowd: list[NewRequest], key: int) -> None:
    logits = torch.randn(len(crowd), 601, generator=torch.Generator().manual_seed(key))
    states = [SamplingState(request, 601) for request in crowd]
    alone = [choose(logits[row : row + 1], [state])[0] for row, state in enumerate(states)]
    assert choose(logits, states) == alone


@pytest.mark.parametrize("sampling", [{}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2}, {"temperature": 2.0}])
@pytest.mark.parametrize("vocab_size", [8, 520])
def test_frequencies_follow_the_distribution(sampling: dict[str, float], vocab_size: int) -> None:
    logits = np.full(vocab_size, -30.0, np.float32)
    logits[:8] = [0.5, 2.0, -1.0, 1.0, 0.0, 2.0, -3.0, 1.5]
    request = new_request(**sampling)
    states = [new_state(vocab_size, seed=seed, **sampling) for seed in range(DRAWS)]
    chosen = choose(torch.from_numpy(logits).expand(DRAWS, -1), states)
    intervals = {
        token_id: end - begin for token_id, begin, end in naive_intervals(logits, request) if end - begin > 1e-6
    }
    assert set(chosen) == set(intervals)
    expected = {token_id: share * DRAWS for token_id, share in intervals.items()}
    distance = sum((chosen.count(token_id) - each) ** 2 / each for token_id, each in expected.items())
    # The 0.999 quantile of chi-square with seven degrees of freedom, the most there can be here.
    assert distance < 24.3


@pytest.mark.parametrize("vocab_size", [4, 1024])
def test_a_number_on_the_edge_of_two_tokens_chooses_the_second(vocab_size: int) -> None:
    batch = SamplingBatch.of([new_state(vocab_size)] * 4)
    at_edges = dataclasses.replace(batch, uniforms=np.array([0.0, 0.25, 0.5, np.nextafter(1.0, 0.0)]))
    token_ids, _ = sample(torch.zeros(4, vocab_size), at_edges, vocab_size)
    assert token_ids.tolist() == [0, vocab_size // 4, vocab_size // 2, vocab_size - 1]


@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_a_nucleus_longer_than_the_sorted_beginning(top_p: float) -> None:
    batch = SamplingBatch.of([new_state(4000, top_p=top_p)] * 3)
    # A tenth, half and all of what the nucleus holds of 4000 equal tokens.
    numbers = dataclasses.replace(batch, uniforms=np.array([0.1001, 0.5, np.nextafter(1.0, 0.0)]))
    token_ids, _ = sample(torch.zeros(3, 4000), numbers, 4000)
    assert token_ids.tolist() == [int(400 * top_p), int(2000 * top_p), int(4000 * top_p) - 1]


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.zeros(3, 600)
    logits[1, [599, 77, 300]] = 5.0
    logits[2, 1] = -0.0
    assert choose(logits, [new_state(600, temperature=0.0)] * 3) == [0, 77, 0]


def test_greedy_with_edits_among_random_rows() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]]).repeat(3, 1)
    greedy = new_state(3, temperature=0.0, logit_bias={0: 5.0})
    certain = new_state(3, temperature=1.0, top_k=1)
    assert choose(logits, [greedy, certain, new_state(3, temperature=0.0)]) == [0, 2, 2]


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    logits = torch.tensor([[1.0, 3e38, -3e38, 2.0]])
    assert choose(logits, [new_state(4, temperature=5e-324)]) == [1]


def test_a_penalty_that_overflows_stays_a_number() -> None:
    logits = torch.tensor([[3e38, 1.0, 0.0]])
    assert choose(logits, [new_state(3, prompt=[0], repetition_penalty=0.01)]) == [0]


def test_everything_barred_still_has_an_answer() -> None:
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    barred = {"end_token_ids": frozenset({0, 1, 2}), "min_tokens": 5}
    assert choose(logits, [new_state(3, temperature=0.0, **barred), new_state(3, **barred)]) == [0, 0]


def test_end_and_stop_tokens_only_after_min_tokens() -> None:
    logits = torch.tensor([[0.0, 9.0, 8.0, 1.0]])
    params = {"temperature": 0.0, "min_tokens": 2, "stop_token_ids": (2,), "end_token_ids": frozenset({1, 1000})}
    assert choose(logits, [new_state(4, output=[0], **params)]) == [3]
    assert choose(logits, [new_state(4, output=[0, 0], **params)]) == [1]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_broken_row_is_marked_and_the_others_are_not_touched(bad: float) -> None:
    logits = torch.randn(4, 600, generator=torch.Generator().manual_seed(3))
    states = [new_state(600, seed=row, temperature=row % 2 * 1.0) for row in range(4)]
    right = choose(logits, states)
    logits[1, 17], logits[2, 599] = bad, bad
    token_ids, broken = sample(logits, SamplingBatch.of(states), 600)
    assert broken.tolist() == [False, True, True, False]
    assert (token_ids[0].item(), token_ids[3].item()) == (right[0], right[3])


def test_resumed_state_chooses_what_the_original_would() -> None:
    generator = torch.Generator().manual_seed(11)
    params = {"frequency_penalty": 0.5, "presence_penalty": 0.3, "repetition_penalty": 1.2, "min_tokens": 9}
    request = new_request(prompt=[4, 5, 4], end_token_ids=frozenset({6}), **params)
    state, output = SamplingState(request, 600), []
    for _ in range(40):
        logits = torch.randn(1, 600, generator=generator)
        resumed = new_state(600, prompt=[4, 5, 4], output=output, end_token_ids=frozenset({6}), **params)
        (token_id,) = choose(logits, [state])
        assert choose(logits, [resumed]) == [token_id]
        state.append(token_id)
        output.append(token_id)


def test_the_line_orders_by_logit_then_id() -> None:
    logits = torch.tensor([[-0.0, -torch.inf, 1.5, 0.0, -2.0, 1.5, 3e38, -3e38]])
    assert line(logits, 8).tolist() == [[6, 2, 5, 0, 3, 4, 7, 1]]


def _uniform(request: NewRequest) -> float:
    index = len(request.token_ids) - request.num_prompt_tokens
    return float(uniforms(*(np.array([each]) for each in (request.seed, request.key.choice, index)))[0])
