"""Log-probabilities of chosen tokens and of alternatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.sampling import torch_logprobs
from pagoda.sampling.torch_logprobs import logprob_tensors


def test_chosen_first_then_the_most_likely_with_ranks() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0], [9.0, 9.0, 9.0, 9.0]])
    (entry,) = logprob_tensors(logits, torch.tensor([0]), torch.tensor([2]), 3, 4).to_host()
    assert entry.token_ids == (2, 1, 3, 2)
    assert entry.ranks == (3, 1, 2, 3)
    log_sum = np.log(np.exp([0.0, 2.0, 1.0, 2.0]).sum())
    assert entry.logprobs == pytest.approx([1 - log_sum, 2 - log_sum, 2 - log_sum, 1 - log_sum], abs=1e-6)


def test_equal_tokens_rank_by_id() -> None:
    entries = logprob_tensors(torch.zeros(1, 4), torch.tensor([0] * 4), torch.arange(4), 0, 4).to_host()
    assert [entry.ranks for entry in entries] == [(1,), (2,), (3,), (4,)]


def test_padding_has_no_share() -> None:
    logits = torch.tensor([[0.0, 0.0, 50.0, torch.nan]])
    (entry,) = logprob_tensors(logits, torch.tensor([0]), torch.tensor([1]), 5, 2).to_host()
    assert entry.token_ids == (1, 0, 1)
    assert entry.logprobs == pytest.approx([np.log(0.5)] * 3)


def test_slices_give_what_one_piece_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(9, 600, generator=torch.Generator().manual_seed(5))
    rows, ids = torch.tensor([8, 1, 2, 2, 5, 0, 3]), torch.arange(7) * 13
    whole = logprob_tensors(logits, rows, ids, 4, 600).to_host()
    monkeypatch.setattr(torch_logprobs, "LOGPROB_SLICE", 1300)
    assert logprob_tensors(logits, rows, ids, 4, 600).to_host() == whole
    alone = [logprob_tensors(logits, rows[i : i + 1], ids[i : i + 1], 4, 600).to_host()[0] for i in range(7)]
    assert alone == whole
