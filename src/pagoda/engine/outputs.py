"""What a caller gets back. Plain data, in the shape that users of other engines know."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagoda.errors import PagodaError
from pagoda.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One candidate at one position. `bytes`: the token's own bytes, which need not be whole characters."""

    token_id: int
    token: str
    bytes: bytes
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """The token at a position, and the most likely candidates there, best first (as many as were asked for)."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; `completion_tokens` counts what the caller was given, over all choices.

    cached_tokens: of the prompt, those whose K and V were in the prefix cache.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(slots=True)
class CompletionOutput:
    """One choice.

    finish_reason: "stop", "length", "abort" or "error"; None while it is being generated.
    stop_reason: the stop string or the stop token id that ended it; None for an end token, or another end.
    end_logprobs: of the end or stop token that ended it, which is not among `token_ids`; only with `logprobs`.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    end_logprobs: PositionLogprobs | None = None


@dataclass(slots=True)
class RequestOutput:
    """One request, finished. `sampling_params`: the effective ones. `error`: why it was refused or failed, if it was.

    prompt_logprobs: one entry a prompt token; the first is None, as nothing precedes it.
    num_cached_tokens: of the prompt, for its first choice: the others find what that one has computed.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    outputs: list[CompletionOutput]
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    error: PagodaError | None = None
    num_cached_tokens: int = 0

    @property
    def usage(self) -> Usage:
        completion_tokens = sum(len(output.token_ids) for output in self.outputs)
        return Usage(len(self.prompt_token_ids), completion_tokens, self.num_cached_tokens)


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """What a stream yields: text and tokens new since the last delta of this choice. The joined texts are the whole text.

    prompt_logprobs: as in `RequestOutput`, where they were asked for; the first delta of choice 0 has them all.
    num_cached_tokens: of the prompt, for this choice.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[PositionLogprobs, ...] = ()
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    end_logprobs: PositionLogprobs | None = None
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
    num_cached_tokens: int = 0
