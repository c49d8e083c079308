"""Trouble 26: a log-probability of -inf cannot be written as JSON, and the server answers 500.

Right: log-probabilities are clamped to numbers that JSON has.
"""

from __future__ import annotations

import json

import torch

from pagoda.sampling.torch_logprobs import LOWEST, logprob_tensors


def test_an_impossible_token_has_a_finite_logprob() -> None:
    logits = torch.tensor([[0.0, -torch.inf, -torch.inf]])
    (entry,) = logprob_tensors(logits, torch.tensor([0]), torch.tensor([2]), 3, 3).to_host()
    assert entry.token_ids == (2, 0, 1, 2)
    assert entry.ranks == (3, 1, 2, 3)
    lowest = torch.tensor(LOWEST).item()
    assert entry.logprobs == (lowest, 0.0, lowest, lowest)
    assert json.loads(json.dumps(entry.logprobs, allow_nan=False)) == list(entry.logprobs)
