"""Log-probabilities under the model's own distribution, with torch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from pagoda.core.step import TokenLogprobs
from pagoda.planning.workspace import LOGPROB_SLICE
from pagoda.sampling.torch_sampler import line

# JSON has no infinities; this is as good as one.
LOWEST = -1e30


@dataclass(frozen=True, slots=True)
class LogprobTensors:
    """Of N positions, still on the device: the token there first, then the most likely; each [N, 1 + alternatives]."""

    token_ids: torch.Tensor
    logprobs: torch.Tensor
    ranks: torch.Tensor

    def to_host(self) -> list[TokenLogprobs]:
        columns = (self.token_ids.tolist(), self.logprobs.tolist(), self.ranks.tolist())
        return [
            TokenLogprobs(tuple(ids), tuple(logprobs), tuple(ranks))
            for ids, logprobs, ranks in zip(*columns, strict=True)
        ]


def logprob_tensors(
    logits: torch.Tensor, rows: torch.Tensor, token_ids: torch.Tensor, alternatives: int, vocab_size: int
) -> LogprobTensors:
    """Of the tokens `token_ids` [N] under the rows `rows` [N] of `logits` [R, at least vocab_size], and of the most likely.

    Padding of the vocabulary has no share. Ranks order equal tokens by id. Memory beyond the result is bounded: the
    rows are worked off in slices.
    """
    size = max(1, LOGPROB_SLICE // vocab_size)
    cuts = [*range(0, len(rows), size), len(rows)]
    parts = [
        _slice(logits[rows[begin:end], :vocab_size], token_ids[begin:end, None], alternatives)
        for begin, end in itertools.pairwise(cuts)
    ]
    return LogprobTensors(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _slice(
    logits: torch.Tensor, token_ids: torch.Tensor, alternatives: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprobs = logits.log_softmax(-1)
    own = logits.gather(-1, token_ids)
    ids = torch.arange(logits.shape[-1], device=logits.device)
    ahead = (logits > own) | ((logits == own) & (ids < token_ids))
    best = line(logits, min(alternatives, logits.shape[-1]))
    chosen_ids = torch.cat([token_ids, best], -1)
    best_ranks = torch.arange(1, best.shape[-1] + 1, device=logits.device).expand_as(best)
    ranks = torch.cat([1 + ahead.sum(-1, keepdim=True), best_ranks], -1)
    return chosen_ids, logprobs.gather(-1, chosen_ids).clamp(min=LOWEST), ranks
