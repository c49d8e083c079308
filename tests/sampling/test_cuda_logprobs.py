"""Log-probabilities on the GPU are those of `torch_logprobs`: ids and ranks equal, numbers but for the order of a sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from pagoda.core.step import TokenLogprobs
from pagoda.sampling.cuda import logprobs
from pagoda.sampling.cuda.logprobs import Logprobs
from pagoda.sampling.torch_logprobs import LOWEST, logprob_tensors
from pagoda.sampling_params import MAX_LOGPROBS

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB = 600


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small vocabulary has several, and the last one a tail."""
    monkeypatch.setattr(logprobs, "BLOCK", 128)


def expected(logits: torch.Tensor, rows: np.ndarray, token_ids: np.ndarray, alternatives: int) -> list[TokenLogprobs]:
    places, ids = torch.from_numpy(rows), torch.from_numpy(token_ids)
    return logprob_tensors(logits, places, ids, alternatives, VOCAB).to_host()


def check(mine: list[TokenLogprobs], right: list[TokenLogprobs]) -> None:
    assert [(each.token_ids, each.ranks) for each in mine] == [(each.token_ids, each.ranks) for each in right]
    for one, other in zip(mine, right, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, rel=2e-6, abs=2e-6)


def random_logits(rows: int, seed: int) -> torch.Tensor:
    """Of a padded vocabulary, with ties."""
    logits = torch.randn(rows, VOCAB + 48, generator=torch.Generator().manual_seed(seed)) * 5
    logits[::2] = logits[::2].round()
    logits[:, VOCAB:] = 1000.0
    return logits


@pytest.mark.parametrize("alternatives", [0, 1, MAX_LOGPROBS])
@pytest.mark.parametrize("multiprocessors", [1, 8])  # blocks of a row in one program, and in several
def test_of_tokens_on_the_host(alternatives: int, multiprocessors: int) -> None:
    logits = random_logits(4, seed=alternatives)
    rows, token_ids = np.array([3, 0, 0]), np.array([300, VOCAB - 1, 0])
    launched = Logprobs(DEVICE, 4, VOCAB, multiprocessors).launch(logits.to(DEVICE), rows, token_ids, alternatives)
    check(launched.to_host(), expected(logits, rows, token_ids, alternatives))
    assert launched.broken() == [False] * 3


def test_of_tokens_that_were_just_sampled() -> None:
    logits = random_logits(4, seed=3)
    sampled = torch.tensor([5, 6, 7, 8], dtype=torch.int32, device=DEVICE)
    rows = np.array([3, 1])
    launched = Logprobs(DEVICE, 4, VOCAB, 8).launch(logits.to(DEVICE), rows, sampled, 2)
    check(launched.to_host(), expected(logits, rows, np.array([8, 6]), 2))


def test_results_outlive_the_next_launch() -> None:
    logits = random_logits(3, seed=4)
    scorer = Logprobs(DEVICE, 3, VOCAB, 8)
    rows = [np.array([0, 1, 2]), np.array([2]), np.array([1, 0])]
    launches = [scorer.launch(logits.to(DEVICE), each, each + 9, 3) for each in rows]
    for launched, each in zip(launches, rows, strict=True):
        check(launched.to_host(), expected(logits, each, each + 9, 3))


def test_infinities() -> None:
    logits = random_logits(1, seed=5)
    logits[0, 3:] = -torch.inf
    launched = Logprobs(DEVICE, 1, VOCAB, 8).launch(logits.to(DEVICE), np.array([0]), np.array([500]), 5)
    check(launched.to_host(), expected(logits, np.array([0]), np.array([500]), 5))
    assert launched.to_host()[0].logprobs[0] == np.float32(LOWEST)
    assert launched.broken() == [False]


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_broken_rows_are_marked(bad: float) -> None:
    logits = random_logits(3, seed=6)
    logits[1, :VOCAB] = bad
    logits[2, VOCAB - 1] = bad
    launched = Logprobs(DEVICE, 3, VOCAB, 8).launch(logits.to(DEVICE), np.arange(3), np.arange(3), 0)
    assert launched.broken() == [False, True, bad != -torch.inf]
