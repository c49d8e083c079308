"""What a client sends to the engine. What comes back is `core.step.TokenEvent`.

Plain frozen data that names request, choice and index, so that the engine may be a thread today and a process tomorrow.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.prefix_cache import SHARED, Namespace
from pagoda.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Submit:
    """A request that admission has accepted. sampling: effective. seed: set. arrival_time: seconds, monotonic.

    namespace: with whom it shares what is cached of equal texts.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    end_token_ids: frozenset[int]
    priority: int
    arrival_time: float
    namespace: Namespace = SHARED


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request's choice, or all its choices (`choice` None), now. Unknown and finished ones are ignored."""

    request_id: str
    choice: int | None = None


Message = Submit | Abort
