"""Answers: what the bodies of completions and of chats have in common."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from pagoda.engine.admission import Admitted
from pagoda.engine.outputs import CompletionDelta
from pagoda.sampling_params import SamplingParams
from pagoda.server.generation import Generation
from pagoda.server.openai.requests import Shape


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """What answers. model: its name in the API. fingerprint: of weights, formats, device and settings."""

    model: str
    fingerprint: str


def head(prefix: str, kind: str, served: Served) -> dict[str, Any]:
    """The fields at the top of every body and chunk."""
    return {
        "id": f"{prefix}-{secrets.token_hex(16)}",
        "object": kind,
        "created": int(time.time()),
        "model": served.model,
        "system_fingerprint": served.fingerprint,
    }


def usage(admitted: Iterable[Admitted], completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    prompt_tokens = sum(len(one.submit.prompt_token_ids) for one in admitted)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def parameters(sampling: SamplingParams) -> dict[str, Any]:
    """The effective parameters, those left to the model or to chance filled in."""
    return dataclasses.asdict(dataclasses.replace(sampling, logit_bias=dict(sampling.logit_bias)))


class Chunks:
    """What the streams of completions and of chats have in common: usage, parameters, waiting for the prompt.

    Deltas of a prompt wait until its log-probabilities are known, where those come before the text.
    """

    def __init__(self, head: dict[str, Any], generation: Generation, shape: Shape, waits_for_prompt: bool) -> None:
        self._head, self._shape = head, shape
        self._admitted = generation.admitted
        self._waiting: dict[int, list[CompletionDelta]] = (
            {number: [] for number in range(len(self._admitted))} if waits_for_prompt else {}
        )
        self._completion_tokens = 0
        self._cached_tokens = [0] * len(self._admitted)
        self._first = True

    def ready(self, arrived: Sequence[tuple[int, CompletionDelta]]) -> list[tuple[int, CompletionDelta]]:
        """The deltas that can be told now; a prompt's first one told is the one that has its log-probabilities."""
        told: list[tuple[int, CompletionDelta]] = []
        for number, delta in arrived:
            self._completion_tokens += len(delta.token_ids)
            if delta.index == 0:
                self._cached_tokens[number] = max(self._cached_tokens[number], delta.num_cached_tokens)
            if number not in self._waiting:
                told.append((number, delta))
            elif delta.prompt_logprobs is None:
                self._waiting[number].append(delta)
            else:
                told.append((number, delta))
                told += ((number, held) for held in self._waiting.pop(number))
        return told

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        body = {**self._head, "choices": choices, **more}
        if self._first and self._shape.return_parameters:
            body["parameters"] = self.parameters()
        self._first = False
        if self._shape.include_usage:
            body["usage"] = self.usage() if self._shape.continuous_usage else None
        return body

    def last(self) -> list[dict[str, Any]]:
        """The chunk of usage, if it was asked for."""
        if not self._shape.include_usage:
            return []
        return [{**self._head, "choices": [], "usage": self.usage()}]

    def usage(self) -> dict[str, Any]:
        return usage(self._admitted, self._completion_tokens, sum(self._cached_tokens))

    def parameters(self) -> Any:
        """Of the first prompt."""
        return parameters(self._admitted[0].submit.sampling)
