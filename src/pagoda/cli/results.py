"""Waiting for a result, and results as JSON: one shape for `pagoda generate --json`, batch files and `pagoda chat --json`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pagoda.engine.outputs import CompletionOutput, PositionLogprobs, RequestOutput, TokenLogprob, Usage
from pagoda.progress import TerminalProgress

if TYPE_CHECKING:
    from pagoda.engine.handle import RequestHandle


def wait_for(handle: RequestHandle, most_tokens: int) -> RequestOutput:
    """The finished request, with a bar of its tokens meanwhile. Raises the `PagodaError` that it ended with, if any.

    most_tokens: how many it may become, over all choices.
    """
    count = 0
    with TerminalProgress() as bars:
        for delta in handle:
            count += len(delta.token_ids)
            bars("Generating", count, most_tokens)
    return checked(handle.result())


def checked(result: RequestOutput) -> RequestOutput:
    """The result itself, or the `PagodaError` that it ended with, raised."""
    if result.error is not None:
        raise result.error
    return result


def result_json(result: RequestOutput) -> dict[str, Any]:
    """One finished request: the first choice's fields at the top, all choices under `choices` where there are several."""
    choices = [_choice(output) for output in result.outputs]
    shown = dict(choices[0])
    del shown["index"]
    if len(choices) > 1:
        shown["choices"] = choices
    if result.prompt_logprobs is not None:
        shown["prompt_logprobs"] = [position and _position(position) for position in result.prompt_logprobs]
    shown["usage"] = usage_json(result.usage)
    shown["sampling_params"] = dataclasses.asdict(result.sampling_params)
    return shown


def usage_json(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _choice(output: CompletionOutput) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "index": output.index,
        "text": output.text,
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
    }
    if output.logprobs is not None:
        shown["logprobs"] = [_position(position) for position in output.logprobs]
    return shown


def _position(position: PositionLogprobs) -> dict[str, Any]:
    return {**_token(position.chosen), "top": [_token(token) for token in position.top]}


def _token(token: TokenLogprob) -> dict[str, Any]:
    # JSON has no bytes; a list of numbers is what users of other engines know.
    return {**dataclasses.asdict(token), "bytes": list(token.bytes)}
