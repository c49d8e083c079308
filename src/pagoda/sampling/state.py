"""SamplingState: what choosing the next token of one request needs to remember. No tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pagoda.core.step import NewRequest
from pagoda.sampling.random import uniforms

Int64 = npt.NDArray[np.int64]
# A request's random numbers are made so many at a time: the arithmetic costs as much for one as for all of these.
AHEAD = 64


class TokenCounts:
    """Distinct token ids and how often each occurred, kept as arrays that grow."""

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        ids, counts = np.unique(np.asarray(token_ids, np.int64), return_counts=True)
        self._place = {token_id: place for place, token_id in enumerate(ids.tolist())}
        self._ids, self._counts = ids, counts.astype(np.int64)

    @property
    def ids(self) -> Int64:
        return self._ids[: len(self._place)]

    @property
    def counts(self) -> Int64:
        return self._counts[: len(self._place)]

    def add(self, token_id: int) -> None:
        place = self._place.setdefault(token_id, len(self._place))
        if place == len(self._ids):
            room = np.zeros(max(16, place), np.int64)
            self._ids, self._counts = np.concatenate([self._ids, room]), np.concatenate([self._counts, room])
        self._ids[place] = token_id
        self._counts[place] += 1


class SamplingState:
    """One request's parameters and the tokens that penalties look at.

    It is a function of prompt and output alone: made anew after a preemption it equals the one that went on.

    params     effective parameters
    num_output tokens generated so far, which is the index of the next one
    output     the output's tokens, where presence or frequency penalty needs them
    seen       the tokens of prompt and output, where repetition penalty needs them
    barred     tokens that cannot be chosen before min_tokens (its end and stop tokens)
    is_greedy  takes the most likely token
    has_edits  may change logits; what never does is told apart once and for all steps
    """

    def __init__(self, request: NewRequest, vocab_size: int) -> None:
        """vocab_size: tokens that there really are. An end token outside of it cannot be chosen anyway."""
        self.params = request.sampling
        self.seed = request.seed
        self.choice = request.key.choice
        self.num_output = len(request.token_ids) - request.num_prompt_tokens
        self.output = TokenCounts(request.token_ids[request.num_prompt_tokens :]) if self.counts_output else None
        self.seen = TokenCounts(request.token_ids) if self.counts_all else None
        self.barred = _known({*self.params.stop_token_ids, *request.end_token_ids}, vocab_size)
        self.biased = np.fromiter(self.params.logit_bias.keys(), np.int64)
        self.bias = np.fromiter(self.params.logit_bias.values(), np.float32)
        self.is_greedy = self.params.temperature == 0.0
        may_bar = self.params.min_tokens > 0 and len(self.barred) > 0
        self.has_edits = self.counts_output or self.counts_all or len(self.biased) > 0 or may_bar
        self._first_drawn, self._drawn = self.num_output, list[float]()

    @property
    def counts_output(self) -> bool:
        return self.params.presence_penalty != 0.0 or self.params.frequency_penalty != 0.0

    @property
    def counts_all(self) -> bool:
        return self.params.repetition_penalty not in (None, 1.0)

    @property
    def bars_end(self) -> bool:
        return self.num_output < self.params.min_tokens and len(self.barred) > 0

    @property
    def has_uniform(self) -> bool:
        return self.num_output - self._first_drawn < len(self._drawn)

    @property
    def uniform(self) -> float:
        """The random number that chooses the next token; after `draw_ahead`."""
        return self._drawn[self.num_output - self._first_drawn]

    def take_drawn(self, numbers: list[float]) -> None:
        """The random numbers of the next tokens."""
        self._first_drawn, self._drawn = self.num_output, numbers

    def append(self, token_id: int) -> None:
        """The next token was chosen."""
        self.num_output += 1
        if self.output is not None:
            self.output.add(token_id)
        if self.seen is not None:
            self.seen.add(token_id)


def draw_ahead(states: Iterable[SamplingState]) -> None:
    """Make sure that each of these has the random number of its next token."""
    lacking = [state for state in states if not state.has_uniform]
    if not lacking:
        return
    seeds = np.array([state.seed for state in lacking], np.int64)
    choices = np.array([state.choice for state in lacking], np.int64)
    indices = np.array([state.num_output for state in lacking], np.int64)[:, None] + np.arange(AHEAD)
    numbers = uniforms(seeds.repeat(AHEAD), choices.repeat(AHEAD), indices.reshape(-1)).reshape(-1, AHEAD)
    for state, own in zip(lacking, numbers.tolist(), strict=True):
        state.take_drawn(own)


def _known(token_ids: Iterable[int], vocab_size: int) -> Int64:
    return np.array(sorted(token_id for token_id in token_ids if 0 <= token_id < vocab_size), np.int64)
