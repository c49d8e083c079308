"""Trouble 27: rows that only pad the embedding table are sampled, and nothing can decode them.

Right: they can never be chosen, whatever their logits, and have no share in log-probabilities.
"""

from __future__ import annotations

import torch

from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.torch_logprobs import logprob_tensors
from pagoda.sampling.torch_sampler import sample
from tests.sampling.requests import new_state

REAL, PADDED = 600, 640


def test_padding_is_never_chosen() -> None:
    logits = torch.zeros(300, PADDED)
    logits[:, REAL:] = 1000.0
    states = [new_state(REAL, seed=seed, temperature=seed % 3 * 50.0) for seed in range(300)]
    token_ids, broken = sample(logits, SamplingBatch.of(states), REAL)
    assert not broken.any()
    assert int(token_ids.max()) < REAL


def test_a_broken_number_in_padding_does_not_matter() -> None:
    logits = torch.zeros(1, PADDED)
    logits[0, REAL:] = torch.nan
    token_ids, broken = sample(logits, SamplingBatch.of([new_state(REAL, temperature=0.0)]), REAL)
    assert (token_ids.tolist(), broken.tolist()) == ([0], [False])


def test_padding_is_no_alternative() -> None:
    logits = torch.zeros(1, PADDED)
    logits[:, REAL:] = 1000.0
    (entry,) = logprob_tensors(logits, torch.tensor([0]), torch.tensor([3]), 20, REAL).to_host()
    assert max(entry.token_ids) < REAL
    assert abs(entry.logprobs[0] + torch.log(torch.tensor(float(REAL))).item()) < 1e-5
