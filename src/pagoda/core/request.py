"""Request: one sequence on its way through the engine. The scheduler owns it; nobody else changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from pagoda.core.prefix_cache import NOTHING_FOUND, SHARED, Namespace, Prefix
from pagoda.core.step import NewRequest, RequestKey
from pagoda.sampling_params import SamplingParams


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """`num_computed_tokens` catches up with `num_tokens`: prefill, decode and resumption are all just that.

    prompt_token_ids: never changes. sampling: effective parameters (max_tokens set). seed: set.
    end_token_ids: what ends this request, besides sampling.stop_token_ids (empty with ignore_eos).
    num_computed_tokens: positions whose K and V are in the cache, or will be when the steps in flight are done. A request may
        come with all but its last token computed elsewhere; if it is preempted, it computes them here.
    num_pending: tokens sampled by steps in flight, not known here yet.
    num_prompt_logprobs: positions 1 … num_prompt_logprobs have had their prompt log-probabilities sent.
    order: the policy's sort key, then the number of its arrival. No two requests have the same.
    namespace: with whom it shares K and V of equal texts. prefix: what of its text the cache held when it was last looked
        for. num_cached_tokens: of its prompt, found there when it entered for the first time.
    max_num_positions: the most it can ever have in the cache: the last token it may generate need not be computed.
    """

    key: RequestKey
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    seed: int
    end_token_ids: frozenset[int] = frozenset()
    priority: int = 0
    arrival_time: float = 0.0
    status: Status = Status.WAITING
    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_pending: int = 0
    num_preemptions: int = 0
    num_prompt_logprobs: int = 0
    order: tuple[float, ...] = ()
    namespace: Namespace = SHARED
    prefix: Prefix = NOTHING_FOUND
    num_cached_tokens: int = 0
    num_prompt_tokens: int = field(init=False)
    max_num_positions: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.prompt_token_ids)
        self.max_num_positions = self.num_prompt_tokens + max((self.sampling.max_tokens or 0) - 1, 0)

    @property
    def known_token_ids(self) -> Sequence[int]:
        """Prompt and output, without tokens in flight."""
        return (*self.prompt_token_ids, *self.output_token_ids) if self.output_token_ids else self.prompt_token_ids

    @property
    def num_tokens(self) -> int:
        """Prompt and output, tokens in flight included."""
        return self.num_prompt_tokens + len(self.output_token_ids) + self.num_pending

    @property
    def num_uncomputed_tokens(self) -> int:
        """Positions to compute before anything new is known: 1 in decode, 0 when all it may generate is under way."""
        known = self.num_prompt_tokens + len(self.output_token_ids) + self.num_pending
        most = self.max_num_positions
        return (known if known < most else most) - self.num_computed_tokens

    @property
    def num_positions_at_admission(self) -> int:
        """What admission makes room for: its tokens so far and the next one, if there can be one."""
        return min(self.num_tokens + 1, self.max_num_positions)

    def as_new(self) -> NewRequest:
        """The request as a runner learns of it."""
        tokens, num_prompt_tokens = self.known_token_ids, self.num_prompt_tokens
        return NewRequest(self.key, tokens, num_prompt_tokens, self.sampling, self.seed, self.end_token_ids)
