"""What a request's sampling remembers, and the arrays made of it."""

from __future__ import annotations

import numpy as np

from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.random import uniforms
from pagoda.sampling.state import AHEAD, TokenCounts
from tests.sampling.requests import new_state


def test_counts_grow_one_by_one_to_what_they_are_at_once() -> None:
    tokens = np.random.default_rng(2).integers(0, 90, 400).tolist()
    counts = TokenCounts(tokens[:7])
    for token_id in tokens[7:]:
        counts.add(token_id)
    pairs = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
    assert pairs == {token_id: tokens.count(token_id) for token_id in set(tokens)}


def test_a_plain_greedy_batch_has_no_edits_and_no_random_rows() -> None:
    batch = SamplingBatch.of([new_state(10, temperature=0.0), new_state(10, temperature=0.0)])
    assert not batch.has_edits
    assert len(batch.random_rows) == 0


def test_edits_name_row_token_and_value() -> None:
    batch = SamplingBatch.of(
        [
            new_state(10, prompt=[1, 2], output=[3, 3, 4], presence_penalty=0.5, frequency_penalty=0.25),
            new_state(10, prompt=[1, 2, 1], output=[5], repetition_penalty=1.5),
            new_state(10, logit_bias={7: -2.0}, stop_token_ids=(9,), min_tokens=1, end_token_ids=frozenset({8, 11})),
        ]
    )
    assert _shown(batch.subtract) == [(0, 3, 1.0), (0, 4, 0.75)]
    assert _shown(batch.repetition) == [(1, 1, 1.5), (1, 2, 1.5), (1, 5, 1.5)]
    assert _shown(batch.add) == [(2, 7, -2.0)]
    assert _shown(batch.bar) == [(2, 8, -np.inf), (2, 9, -np.inf)]


def test_numbers_drawn_ahead_are_each_tokens_own_also_after_a_resumption() -> None:
    early, late = new_state(10, seed=3, choice=1), new_state(10, output=[4] * 5, seed=7)
    for index in range(2 * AHEAD + 3):
        numbers = SamplingBatch.of([early, late]).uniforms
        own = uniforms(np.array([3, 7]), np.array([1, 0]), np.array([index, 5 + index]))
        assert numbers.tolist() == own.tolist()
        early.append(2)
        late.append(2)


def _shown(edits: object) -> list[tuple[int, int, float]]:
    return list(zip(edits.rows.tolist(), edits.ids.tolist(), edits.values.tolist(), strict=True))  # type: ignore[attr-defined]
