"""SchedulerOutput and RunnerOutput: the only things that cross between the scheduler and a runner.

The runner keeps each running request's tokens and block table itself, so a row names positions, not ids: a position
whose token was sampled by the step before is simply the runner's to know. That lets the next step be scheduled while
the device still works on this one.

Rows and their results are named tuples because hundreds are made in every step, and a frozen dataclass takes three
times as long to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pagoda.sampling_params import SamplingParams


class RequestKey(NamedTuple):
    """One choice of one request: what is scheduled, and what owns KV blocks."""

    request_id: str
    choice: int


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that enters the batch, for the first time or again after a preemption.

    token_ids: prompt and all output so far; the first `num_prompt_tokens` are the prompt.
    sampling: effective parameters (no field that has a default is None).
    seed: set, whether the user gave it or admission drew it.
    end_token_ids: what ends the request besides sampling.stop_token_ids; with these, not to be sampled before min_tokens.
    """

    key: RequestKey
    token_ids: Sequence[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    end_token_ids: frozenset[int] = frozenset()


class ScheduledRow(NamedTuple):
    """One request's share of a step: compute positions `start` … `start + num_tokens - 1`.

    new_block_ids: blocks appended to its table by this step. The first `num_shared_blocks` of them hold K and V of its first
        positions already; the runner zeroes the others before use.
    samples: whether the last position's logits choose the next token.
    """

    key: RequestKey
    start: int
    num_tokens: int
    new_block_ids: tuple[int, ...]
    samples: bool
    num_shared_blocks: int = 0


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step: first forget `dropped` (finished, aborted, preempted), then add `new`, then compute `rows`, in order."""

    step: int
    dropped: tuple[RequestKey, ...]
    new: tuple[NewRequest, ...]
    rows: tuple[ScheduledRow, ...]

    @property
    def num_tokens(self) -> int:
        return sum([row.num_tokens for row in self.rows])

    @property
    def num_logit_rows(self) -> int:
        """Positions whose logits are computed: an unfinished chunk of a prompt has none. prompt_logprobs are not counted."""
        return sum([row.samples for row in self.rows])


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position: the token that is there first, then the most likely ones, best first.

    Natural logarithms under the model's own distribution, before any sampling parameter; never below -1e30, so that
    they are always JSON numbers. `ranks`: 1 is the most likely token.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]


class RowResult(NamedTuple):
    """What a step did for one row, in the order of `SchedulerOutput.rows`.

    token_id: the sampled token, where the row samples.
    prompt_logprobs: of the prompt tokens at positions start + 1 … start + num_tokens, as far as the prompt goes.
    error: why this row, and it alone, failed; its request ends with it.
    """

    key: RequestKey
    token_id: int | None = None
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RunnerOutput:
    step: int
    rows: tuple[RowResult, ...]


@dataclass(slots=True)  # not frozen: one is made for every token, which takes three times as long if it is
class TokenEvent:
    """What the engine tells a client about one choice: a new token, prompt log-probabilities, the end, or several of these.
    Nobody changes one.

    index: how many output tokens came before this event; a client drops an event it has already seen.
    finish_reason: "stop" (an end or stop token), "length", "abort" or "error"; None while it goes on.
    stop_token_id: the end or stop token that ended it. It is sampled but not part of `token_ids`, nor counted; `logprobs`
        are its own then.
    num_cached_tokens: how many tokens of the prompt the prefix cache had; with what a step has made.
    """

    key: RequestKey
    index: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None
    stop_token_id: int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
