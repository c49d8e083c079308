"""Every field is honoured, without effect, or refused by name; the documentation and OpenAI's own client know the same ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams
from pagoda.server.openai.fields import Field, Fields, Treatment, accepted
from pagoda.server.openai.requests import chat_request, completion_request
from pagoda.server.openai.tables import CHAT_FIELDS, COMPLETION_FIELDS, MESSAGE_FIELDS, STREAM_OPTIONS
from pagoda.server.routes.tokenize import DETOKENIZE_FIELDS, TOKENIZE_FIELDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
TABLES = {
    "`POST /v1/completions`": COMPLETION_FIELDS,
    "`POST /v1/chat/completions`": CHAT_FIELDS,
    "`messages[…]`": MESSAGE_FIELDS,
    "`stream_options`": STREAM_OPTIONS,
    "`POST /tokenize`": TOKENIZE_FIELDS,
    "`POST /detokenize`": DETOKENIZE_FIELDS,
}
COMPLETION: dict[str, Any] = {"prompt": "Hi"}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize("heading", TABLES)
def test_the_documentation_has_the_table(heading: str) -> None:
    section = DOCUMENT.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n#")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| `", line)]
    assert rows == [documented(entry) for entry in TABLES[heading].values()]


def documented(entry: Field) -> str:
    note = entry.note
    if entry.values is not None:
        values = " or ".join(f"`{json.dumps(value)}`" for value in entry.values) or "null"
        note = f"Only {values}: {note}."
    return f"| `{entry.name}` | {entry.treatment.value} | {note} |"


@pytest.mark.parametrize(
    ("fields", "documented_fields"),
    [
        (COMPLETION_FIELDS, completion_create_params.CompletionCreateParamsBase.__annotations__),
        (CHAT_FIELDS, chat_create_params.CompletionCreateParamsBase.__annotations__),
    ],
    ids=["completions", "chat"],
)
def test_every_field_of_openais_request_is_in_the_table(fields: Fields, documented_fields: dict[str, Any]) -> None:
    assert len(documented_fields) > 15
    assert set(documented_fields) <= set(fields)
    assert "stream" in fields


@pytest.mark.parametrize("fields", [COMPLETION_FIELDS, CHAT_FIELDS], ids=["completions", "chat"])
def test_null_means_unset(fields: Fields) -> None:
    assert accepted(dict.fromkeys(fields), fields) == {}


@pytest.mark.parametrize(
    "entry", [entry for entry in CHAT_FIELDS.values() if entry.values is not None], ids=lambda entry: entry.name
)
def test_a_refused_field_takes_what_asks_for_nothing_and_nothing_else(entry: Field) -> None:
    for value in entry.values or ():
        chat_request({**CHAT, entry.name: value}, 100)
    for value in ("high", 7, {"type": "json_object"}, [{"type": "function"}], 0, 1.0):
        with pytest.raises(InvalidValueError, match=entry.note) as caught:
            chat_request({**CHAT, entry.name: value}, 100)
        assert caught.value.field == entry.name


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("user", "me", 5), ("metadata", {"a": "b"}, "a"), ("parallel_tool_calls", True, "yes"), ("store", False, True)],
)
def test_fields_without_effect_still_have_a_type(name: str, good: object, bad: object) -> None:
    assert chat_request({**CHAT, name: good}, 100) == chat_request(CHAT, 100)
    with pytest.raises(InvalidValueError, match=f"^{name}: got"):
        chat_request({**CHAT, name: bad}, 100)


HONOURED = {
    "temperature": 0.5,
    "top_p": 0.5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"7": 1},
    "seed": 7,
    "n": 3,
    "stop": ["end"],
    "top_k": 7,
    "min_p": 0.5,
    "repetition_penalty": 1.5,
    "ignore_eos": True,
    "min_tokens": 3,
    "stop_token_ids": [7],
    "prompt_logprobs": 3,
    "max_tokens": 30,
}


@pytest.mark.parametrize("name", HONOURED)
def test_sampling_parameters_arrive(name: str) -> None:
    for call, _ in (
        completion_request({**COMPLETION, name: HONOURED[name]}, 100, 8),
        chat_request({**CHAT, name: HONOURED[name]}, 100),
    ):
        assert call.sampling == SamplingParams(**{name: HONOURED[name]})  # type: ignore[arg-type]
        assert call.sampling != SamplingParams()


REST = {"model", "prompt", "messages", "stream", "stream_options", "echo", "logprobs", "top_logprobs", "best_of"}
REST |= {"max_completion_tokens", "priority", "return_parameters", "cache_salt"}


def test_each_honoured_field_is_tested_here_or_in_the_tests_of_its_route() -> None:
    for fields in (COMPLETION_FIELDS, CHAT_FIELDS):
        honoured = {name for name, entry in fields.items() if entry.treatment is Treatment.HONOURED}
        assert honoured <= set(HONOURED) | REST


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({"prompt": "Hi", "temprature": 1}, "temprature", "there is no such field"),
        ({"prompt": "Hi", "x" * 500: 1}, "x" * 80 + "…", "there is no such field"),
        ({"prompt": "Hi", "\ud800": 1}, "?", "there is no such field"),
        ({}, "prompt", "at least one"),
        ({"prompt": [{"role": "user", "content": "Hi"}]}, "prompt[0]", "an integer"),
        ({"prompt": [[{"role": "user", "content": "Hi"}]]}, "prompt[0][0]", "an integer"),
        ({"prompt": ["a", [1]]}, "prompt[1]", "text"),
        ({"prompt": ["a"] * 9}, "prompt", "at most 8 prompts"),
        ({"prompt": "Hi", "best_of": 2}, "best_of", "equal to n"),
        ({"prompt": "Hi", "best_of": True}, "best_of", "an integer"),
        ({"prompt": "Hi", "suffix": "x"}, "suffix", "not supported"),
        ({"prompt": "Hi", "max_tokens": 0}, "max_tokens", "echo or prompt_logprobs"),
        ({"prompt": "Hi", "logprobs": 21}, "logprobs", "from 0 to 20"),
        ({"prompt": "Hi", "logprobs": True}, "logprobs", "an integer"),
        ({"prompt": "Hi", "echo": 1}, "echo", "true or false"),
        ({"prompt": "Hi", "model": 5}, "model", "a string"),
        ({"prompt": "Hi", "stream_options": {}}, "stream_options", "unless stream is true"),
        ({"prompt": "Hi", "stream": True, "stream_options": 1}, "stream_options", "an object"),
        ({"prompt": "Hi", "stream": True, "stream_options": {"x": 1}}, "stream_options.x", "no such field"),
        (
            {"prompt": "Hi", "stream": True, "stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            "true or false",
        ),
    ],
)
def test_a_completion_is_refused_by_field_and_limit(body: dict[str, Any], field: str, limit: str) -> None:
    with pytest.raises(InvalidValueError, match=limit) as caught:
        completion_request(body, 100, 8)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({}, "messages", "at least one message"),
        ({"messages": []}, "messages", "at least one message"),
        ({"messages": ["Hi"]}, "messages[0]", "an object"),
        ({"messages": [{"role": "user", "content": "Hi", "colour": 1}]}, "messages[0].colour", "no such field"),
        ({"messages": [{"role": "user", "content": "Hi", "name": 1}]}, "messages[0].name", "a string"),
        ({"messages": [{"role": "user", "content": "Hi", "tool_calls": [1]}]}, "messages[0].tool_calls", "tools"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "messages[0].content[0].type",
            "not supported",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache": 1}]}]},
            "messages[0].content[0].cache",
            "no such field",
        ),
        ({**CHAT, "top_logprobs": 2}, "top_logprobs", "unless logprobs is true"),
        ({**CHAT, "logprobs": 2}, "logprobs", "true or false"),
        ({**CHAT, "max_tokens": 2, "max_completion_tokens": 3}, "max_completion_tokens", "equal to max_tokens"),
        ({**CHAT, "max_completion_tokens": 0}, "max_completion_tokens", "at least 1"),
        ({**CHAT, "max_tokens": 0}, "max_tokens", "at least 1"),
        ({**CHAT, "priority": 10**7}, "priority", "to 1,000,000"),
    ],
)
def test_a_chat_is_refused_by_field_and_limit(body: dict[str, Any], field: str, limit: str) -> None:
    with pytest.raises(InvalidValueError, match=limit) as caught:
        chat_request(body, 100)
    assert caught.value.field == field


def test_both_names_of_max_tokens_may_be_given_if_equal() -> None:
    call, _ = chat_request({**CHAT, "max_tokens": 3, "max_completion_tokens": 3}, 100)
    assert call.sampling.max_tokens == 3
