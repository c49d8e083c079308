"""The ways in which prompts may be given to `LLM`: one or several, as text, token ids or conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pagoda.engine.admission import Messages, Prompt
from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams

Params = SamplingParams | Sequence[SamplingParams] | None


def listed_prompts(prompts: str | Sequence[int] | Sequence[str | Sequence[int]]) -> Sequence[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise InvalidValueError("prompts", prompts, "text, token ids, or a list of those")
    if prompts and isinstance(prompts[0], int):
        return [cast("Sequence[int]", prompts)]
    return cast("Sequence[Prompt]", prompts)


def listed_conversations(messages: Messages | Sequence[Messages]) -> Sequence[Prompt]:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InvalidValueError("messages", messages, "a list of messages, or a list of such lists")
    if isinstance(messages[0], Mapping):
        return [cast("Messages", messages)]
    return [checked_conversation(conversation) for conversation in cast("Sequence[Messages]", messages)]


def checked_conversation(messages: Messages) -> Messages:
    """Raises `InvalidValueError` for what is no list of messages, so that it is not taken for a prompt of another kind."""
    listed = isinstance(messages, Sequence) and not isinstance(messages, (str, bytes))
    if not listed or not messages or not all(isinstance(message, Mapping) for message in messages):
        raise InvalidValueError("messages", messages, "a list of messages, each with role and content")
    return messages


def params_each(params: Params, count: int) -> Sequence[SamplingParams | None]:
    if params is None or isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence) or len(params) != count:
        raise InvalidValueError("sampling_params", params, f"one for all prompts or one each ({count:,})")
    return params
