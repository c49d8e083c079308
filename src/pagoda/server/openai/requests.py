"""From a request's JSON to what the engine is asked. Raises `InvalidValueError` naming the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagoda import checks
from pagoda.engine.admission import Prompt
from pagoda.errors import InvalidValueError
from pagoda.sampling_params import MAX_LOGPROBS, SamplingParams
from pagoda.server.generation import Call, renaming
from pagoda.server.openai.fields import Fields, accepted
from pagoda.server.openai.tables import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    DEFAULT_COMPLETION_TOKENS,
    MESSAGE_FIELDS,
    PART_FIELDS,
    STREAM_OPTIONS,
)

# Fields that go into SamplingParams under the same name; it checks them.
SAMPLING_NAMES = (
    *("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logit_bias", "seed", "max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos", "n"),
)
# Above either of these a call is admitted in a thread: a text costs its length, a choice its matcher of stop strings.
HEAVY_BODY_BYTES = 8192
HEAVY_CHOICES = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """What the answer is to look like.

    logprobs: alternatives a token of the output, None for no log-probabilities; echo: the prompt's tokens likewise.
    prompt_logprobs: alternatives a token of the prompt, in the extension's form.
    """

    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_parameters: bool
    logprobs: int | None
    prompt_logprobs: int | None
    echo: bool = False


def completion_request(body: Mapping[str, Any], size: int, max_prompts: int) -> tuple[Call, Shape]:
    """A body of /v1/completions that has `size` bytes."""
    given = _accepted(body, COMPLETION_FIELDS)
    prompts, several = _prompts(given.get("prompt"), max_prompts)
    echo = checks.boolean("echo", given.get("echo", False))
    logprobs = _optional_count("logprobs", given)
    shape = _shape(given, logprobs, echo)
    n = given.get("n", 1)
    if "best_of" in given and checks.integer("best_of", given["best_of"], 1) != n:
        raise InvalidValueError(
            "best_of", given["best_of"], f"left out or equal to n ({n!r:.20}): choices are not ranked"
        )
    asked = [shape.prompt_logprobs, logprobs if echo else None, 0 if echo and given.get("max_tokens") == 0 else None]
    if given.get("max_tokens") == 0 and asked == [None] * 3:
        raise InvalidValueError("max_tokens", 0, "at least 1 (0 only together with echo or prompt_logprobs)")
    sampling = _sampling(given, logprobs, max((count for count in asked if count is not None), default=None))
    call = Call(
        prompts=prompts,
        sampling=sampling,
        priority=_priority(given),
        cache_salt=given.get("cache_salt"),
        several=several,
        default_max_tokens=DEFAULT_COMPLETION_TOKENS,
        heavy=_heavy(size, len(prompts) * sampling.n),
    )
    return call, shape


def chat_request(body: Mapping[str, Any], size: int) -> tuple[Call, Shape]:
    """A body of /v1/chat/completions that has `size` bytes."""
    given = _accepted(body, CHAT_FIELDS)
    messages = checked_messages(given.get("messages"))
    logprobs = checks.boolean("logprobs", given.get("logprobs", False))
    top_logprobs = _optional_count("top_logprobs", given)
    if top_logprobs is not None and not logprobs:
        raise InvalidValueError("top_logprobs", top_logprobs, "left out unless logprobs is true")
    shape = _shape(given, (top_logprobs or 0) if logprobs else None)
    longest = given.pop("max_completion_tokens", None)
    if longest is not None:
        checks.integer("max_completion_tokens", longest, 0)
        if given.setdefault("max_tokens", longest) != longest:
            limit = f"equal to max_tokens ({given['max_tokens']!r:.20}) where both are given"
            raise InvalidValueError("max_completion_tokens", longest, limit)
    # Admission's words for a prompt, and the older name, become those that the caller used.
    names = {"prompt": "messages"} | ({} if longest is None else {"max_tokens": "max_completion_tokens"})
    with renaming(names):
        sampling = _sampling(given, shape.logprobs, shape.prompt_logprobs)
    call = Call(
        prompts=[messages],
        sampling=sampling,
        priority=_priority(given),
        cache_salt=given.get("cache_salt"),
        names=names,
        heavy=_heavy(size, sampling.n),
    )
    return call, shape


def checked_messages(messages: object) -> list[dict[str, Any]]:
    """The messages with the fields that the API knows; what is in them is checked where the template is rendered."""
    if not isinstance(messages, list) or not messages:
        raise InvalidValueError("messages", messages, "a list of at least one message")
    return [_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _accepted(body: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    given = accepted(body, fields)
    checks.text("model", given.get("model", ""))
    return given


def _message(field: str, message: object) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidValueError(field, message, "an object with role and content")
    given = accepted(message, MESSAGE_FIELDS, f"{field}.")
    checks.text(f"{field}.name", given.get("name", ""))
    content = given.get("content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            _check_part(f"{field}.content[{index}]", part)
    return given


def _check_part(field: str, part: object) -> None:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise InvalidValueError(f"{field}.type", kind, '"text": other kinds of parts are not supported')
    accepted(part, PART_FIELDS, f"{field}.")


def _prompts(prompt: object, max_prompts: int) -> tuple[Sequence[Prompt], bool]:
    """The prompts, and whether a list of prompts was given."""
    if isinstance(prompt, str):
        return [prompt], False
    if not isinstance(prompt, list) or not prompt:
        raise InvalidValueError("prompt", prompt, "text, at least one token id, or a list of at least one of those")
    if not isinstance(prompt[0], (str, list)):
        return [_token_ids("prompt", prompt)], False
    if len(prompt) > max_prompts:
        raise InvalidValueError("prompt", prompt, f"at most {max_prompts:,} prompts (max_prompts)")
    kind = type(prompt[0])
    for index, one in enumerate(prompt):
        if type(one) is not kind:
            limit = "text, as prompt[0] is" if kind is str else "a list of token ids, as prompt[0] is"
            raise InvalidValueError(f"prompt[{index}]", one, limit)
        if isinstance(one, list):
            _token_ids(f"prompt[{index}]", one)
    return prompt, True


def _token_ids(field: str, token_ids: list[Any]) -> list[int]:
    # Admission checks each; here only that it will not take them for a conversation.
    if token_ids:
        checks.integer(f"{field}[0]", token_ids[0], 0)
    return token_ids


def _shape(given: Mapping[str, Any], logprobs: int | None, echo: bool = False) -> Shape:
    stream = checks.boolean("stream", given.get("stream", False))
    options = given.get("stream_options")
    if options is not None and not stream:
        raise InvalidValueError("stream_options", options, "left out unless stream is true")
    if options is not None and not isinstance(options, dict):
        raise InvalidValueError("stream_options", options, "an object")
    path = "stream_options."
    chosen = accepted(options or {}, STREAM_OPTIONS, path)
    usage, continuous = (
        checks.boolean(path + name, chosen.get(name, False)) for name in ("include_usage", "continuous_usage_stats")
    )
    return Shape(
        stream=stream,
        include_usage=usage,
        continuous_usage=usage and continuous,
        return_parameters=checks.boolean("return_parameters", given.get("return_parameters", False)),
        logprobs=logprobs,
        prompt_logprobs=_optional_count("prompt_logprobs", given),
        echo=echo,
    )


def _sampling(given: Mapping[str, Any], logprobs: int | None, prompt_logprobs: int | None) -> SamplingParams:
    named = {name: given[name] for name in SAMPLING_NAMES if name in given}
    return SamplingParams(**named, logprobs=logprobs, prompt_logprobs=prompt_logprobs)


def _optional_count(name: str, given: Mapping[str, Any]) -> int | None:
    return checks.integer(name, given[name], 0, MAX_LOGPROBS) if name in given else None


def _priority(given: Mapping[str, Any]) -> int:
    return checks.integer("priority", given.get("priority", 0), -1_000_000, 1_000_000)


def _heavy(size: int, num_choices: int) -> bool:
    return size > HEAVY_BODY_BYTES or num_choices > HEAVY_CHOICES
