"""Trouble 10: a seed is ignored when a neighbour has none, or altogether.

Right: random choice depends on (seed, choice, token index) alone, whoever else is sampled in the same step.
"""

from __future__ import annotations

import torch

from pagoda.sampling.state import SamplingState
from tests.sampling.requests import choose, new_state

VOCAB = 1000
STEPS = 12


def test_a_seed_gives_the_same_tokens_alone_and_beside_any_neighbours() -> None:
    alone = _generate([])
    greedy = new_state(VOCAB, seed=1, temperature=0.0)
    others = [new_state(VOCAB, seed=seed, top_k=seed % 3 * 40) for seed in range(2, 6)]
    assert _generate([greedy]) == alone
    assert _generate([*others, greedy]) == alone
    assert _generate(others, first=False) == alone


def test_another_seed_choice_or_index_gives_other_tokens() -> None:
    logits = torch.zeros(STEPS, VOCAB)
    seeds = choose(logits, [new_state(VOCAB, seed=seed) for seed in range(STEPS)])
    choices = choose(logits, [new_state(VOCAB, choice=choice) for choice in range(STEPS)])
    indices = choose(logits, [new_state(VOCAB, output=[0] * count) for count in range(STEPS)])
    for tokens in (seeds, choices, indices):
        assert len(set(tokens)) > STEPS // 2


def _generate(neighbours: list[SamplingState], first: bool = True) -> list[int]:
    """The tokens of the request under test, its row first or last among the neighbours'."""
    state, generator, tokens = new_state(VOCAB, seed=99), torch.Generator().manual_seed(4), []
    for _ in range(STEPS):
        own = torch.randn(1, VOCAB, generator=generator)
        theirs = torch.linspace(-3, 3, VOCAB).expand(len(neighbours), -1)
        states = [state, *neighbours] if first else [*neighbours, state]
        chosen = choose(torch.cat([own, theirs] if first else [theirs, own]), states)
        for each, token_id in zip(states, chosen, strict=True):
            each.append(token_id)
        tokens.append(chosen[0 if first else -1])
    return tokens
