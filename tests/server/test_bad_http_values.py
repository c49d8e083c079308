"""Bad values in a good body: each a 400 naming field and limit, while eight good streams go on unharmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.good_streams import GoodStreams
from tests.server.process import RunningServer
from tests.server.wire import exchange, post

DIGITS = "9" * 5000  # more than Python turns into an integer
LONG = "x" * 300

# Written as JSON, since some of it no encoder would write: (field and value, param, what the message says).
BOTH = [
    ('"max_tokens": -1', "max_tokens", "of at least"),
    ('"max_tokens": 1.5', "max_tokens", "an integer"),
    ('"max_tokens": "8"', "max_tokens", "an integer"),
    ('"max_tokens": true', "max_tokens", "an integer"),
    ('"max_tokens": 10000000', "max_tokens", "at most 2"),
    ('"temperature": NaN', "", ""),
    ('"temperature": Infinity', "", ""),
    ('"temperature": -Infinity', "", ""),
    ('"temperature": 1e400', "", ""),
    (f'"temperature": {DIGITS}', "", ""),
    (f'"max_tokens": {DIGITS}', "", ""),
    (f'"seed": -{DIGITS}', "", ""),
    ('"temperature": -0.1', "temperature", "from 0.0 to 100.0"),
    ('"temperature": "hot"', "temperature", "a finite number"),
    ('"temperature": [1]', "temperature", "a finite number"),
    ('"temperature": true', "temperature", "a finite number"),
    ('"top_p": 0', "top_p", "above 0 and at most 1"),
    ('"top_p": 1.1', "top_p", "from 0.0 to 1.0"),
    ('"top_k": -2', "top_k", "from 0 to"),
    ('"min_p": 2', "min_p", "from 0.0 to 1.0"),
    ('"presence_penalty": 3', "presence_penalty", "from -2.0 to 2.0"),
    ('"frequency_penalty": "x"', "frequency_penalty", "a finite number from -2.0 to 2.0"),
    ('"repetition_penalty": 0', "repetition_penalty", "from 0.01 to 100.0"),
    ('"n": 1000', "n", "from 1 to 128"),
    ('"n": 0', "n", "from 1 to 128"),
    ('"n": 1.0', "n", "an integer"),
    ('"stop": ' + json.dumps([str(number) for number in range(10_000)]), "stop", "at most 16"),
    ('"stop": [""]', "stop", "not empty"),
    ('"stop": ""', "stop", "not empty"),
    (f'"stop": "{"x" * 5000}"', "stop", "at most 1,024"),
    ('"stop": 5', "stop", "a string or a list of strings"),
    ('"stop": [5]', "stop", "a string"),
    ('"stop": {"a": 1}', "stop", "a string or a list of strings"),
    ('"stop_token_ids": ["a"]', "stop_token_ids", "an integer"),
    ('"stop_token_ids": [1000000000]', "stop_token_ids", "258"),
    ('"seed": -1', "seed", "from 0 to"),
    ('"seed": 9223372036854775808', "seed", "from 0 to"),
    ('"seed": 1.5', "seed", "an integer"),
    ('"ignore_eos": 1', "ignore_eos", "true or false"),
    ('"stream": 1', "stream", "true or false"),
    ('"stream": "yes"', "stream", "true or false"),
    ('"logit_bias": {"-1": 1}', "logit_bias", "integer"),
    ('"logit_bias": {"259": 1}', "logit_bias", "258"),
    ('"logit_bias": {"99999999999999999999": 1}', "logit_bias", "integer"),
    ('"logit_bias": {"1": 1000}', "logit_bias", "from -100.0 to 100.0"),
    ('"logit_bias": {"x": 1}', "logit_bias", "an integer"),
    ('"logit_bias": {"1": "x"}', "logit_bias", "a finite number"),
    ('"logit_bias": [1]', "logit_bias", "a mapping"),
    ('"min_tokens": 9, "max_tokens": 8', "min_tokens", "at most max_tokens (8)"),
    ('"min_tokens": 1000', "min_tokens", "at most"),
    ('"priority": "high"', "priority", "an integer"),
    ('"priority": 10000000', "priority", "from -1,000,000 to 1,000,000"),
    ('"no_such_field": 1', "no_such_field", "no_such_field"),
    (f'"{LONG}": 1', "x", "xxx"),
    ('"stream_options": {"include_usage": true}', "stream_options", "stream"),
    ('"stream": true, "stream_options": {"include_usage": "yes"}', "stream_options", "true or false"),
    ('"stream": true, "stream_options": {"no_such_option": 1}', "stream_options", "no_such_option"),
    ('"stream": true, "stream_options": []', "stream_options", ""),
    ('"model": 5', "model", "a string"),
    ('"user": 5', "user", "a string"),
    ('"store": true', "store", ""),
    ('"service_tier": "gold"', "service_tier", ""),
]
COMPLETIONS = [
    ('"prompt": ""', "prompt", "at least one token"),
    ('"prompt": []', "prompt", "at least one"),
    ('"prompt": [""]', "prompt", "at least one token"),
    ('"prompt": ["good", ""]', "prompt[1]", "at least one token"),
    ('"prompt": [[]]', "prompt", "at least one"),
    ('"prompt": [1, 999999]', "prompt", "from 0 to 258"),
    ('"prompt": [[1], [1, -1]]', "prompt", "from 0 to 258"),
    ('"prompt": [1, 1.5]', "prompt", ""),
    ('"prompt": [1, "one"]', "prompt", ""),
    ('"prompt": ["one", 1]', "prompt", ""),
    ('"prompt": [true]', "prompt", ""),
    ('"prompt": 5', "prompt", ""),
    ('"prompt": {"a": 1}', "prompt", ""),
    ('"prompt": null', "prompt", ""),
    ('"prompt": "\\ud800"', "prompt", "UTF-8"),
    (f'"prompt": "{LONG}"', "prompt", "at most 255 tokens long"),
    (f'"prompt": {json.dumps([1] * 300)}', "prompt", "at most 255 tokens long"),
    (f'"prompt": {json.dumps(["a"] * 129)}', "prompt", "128"),
    ('"max_tokens": 0', "max_tokens", "at least 1"),
    ('"echo": "yes"', "echo", "true or false"),
    ('"logprobs": 21', "logprobs", "from 0 to 20"),
    ('"logprobs": true', "logprobs", "an integer"),
    ('"best_of": 2', "best_of", ""),
    ('"suffix": "x"', "suffix", ""),
    ('"messages": [{"role": "user", "content": "Hi"}]', "messages", "messages"),
]
CHATS = [
    ('"messages": []', "messages", ""),
    ('"messages": null', "messages", ""),
    ('"messages": "Hi"', "messages", ""),
    ('"messages": ["Hi"]', "messages", ""),
    ('"messages": [{"role": "user"}]', "messages[0].content", "string"),
    ('"messages": [{"content": "Hi"}]', "messages[0].role", "string"),
    ('"messages": [{"role": 1, "content": "Hi"}]', "messages[0].role", "string"),
    ('"messages": [{"role": "user", "content": 1}]', "messages[0].content", ""),
    ('"messages": [{"role": "user", "content": "\\ud800"}]', "messages[0].content", "UTF-8"),
    (
        '"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]',
        "messages[0].content",
        "",
    ),
    ('"messages": [{"role": "user", "content": "Hi", "name": 5}]', "messages[0]", "name"),
    (f'"messages": [{{"role": "user", "content": "{LONG}"}}]', "", "at most 255 tokens long"),
    ('"max_completion_tokens": -1', "max_completion_tokens", "of at least"),
    ('"max_completion_tokens": 10000000', "max_completion_tokens", "at most 2"),
    ('"max_completion_tokens": 3, "max_tokens": 4', "max_", "max_"),
    ('"max_tokens": 0', "max_tokens", "at least 1"),
    ('"logprobs": 5', "logprobs", "true or false"),
    ('"top_logprobs": 3', "top_logprobs", "logprobs"),
    ('"logprobs": true, "top_logprobs": 21', "top_logprobs", "from 0 to 20"),
    ('"prompt": "Hi"', "prompt", "prompt"),
    ('"tools": [{"type": "function"}]', "tools", ""),
    ('"functions": [{"name": "f"}]', "functions", ""),
    ('"response_format": {"type": "json_object"}', "response_format", ""),
    ('"modalities": ["audio"]', "modalities", ""),
    ('"chat_template": "{{ 1 }}"', "chat_template", "chat_template"),
    ('"echo": true', "echo", "echo"),
]
CASES = [
    *(("/v1/completions", *case) for case in BOTH + COMPLETIONS),
    *(("/v1/chat/completions", *case) for case in BOTH + CHATS),
]
REQUIRED = {
    "/v1/completions": ("prompt", '"Hi"'),
    "/v1/chat/completions": ("messages", '[{"role": "user", "content": "Hi"}]'),
}


@pytest.fixture(scope="module")
def good(server: RunningServer) -> Iterator[GoodStreams]:
    with GoodStreams(server) as good:
        yield good


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0][4:]}-{case[1][:40]}")
def test_a_bad_value_is_refused_by_name(
    server: RunningServer, good: GoodStreams, case: tuple[str, str, str, str]
) -> None:
    path, fields, param, limit = case
    parts = [fields]
    name, value = REQUIRED[path]
    if f'"{name}":' not in fields:
        parts.append(f'"{name}": {value}')
    if '"model":' not in fields:
        parts.append(f'"model": {json.dumps(server.model)}')
    body = "{" + ", ".join(parts) + "}"
    answer = exchange(server.url, post(server.url, path, body.encode()))
    assert answer.status == 400, answer
    assert answer.headers["content-type"] == "application/json"
    error = answer.error
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param)
    assert limit in error["message"]
    assert len(error["message"]) < 600
    good.check()


@pytest.mark.parametrize("path", REQUIRED)
def test_what_is_required_is_named(server: RunningServer, good: GoodStreams, path: str) -> None:
    answer = exchange(server.url, post(server.url, path, json.dumps({"model": server.model}).encode()))
    assert answer.status == 400
    assert answer.error["param"] == REQUIRED[path][0]
    good.check()


@pytest.mark.parametrize("path", REQUIRED)
def test_a_model_that_is_not_here(server: RunningServer, good: GoodStreams, path: str) -> None:
    name, value = REQUIRED[path]
    answer = exchange(server.url, post(server.url, path, f'{{"model": "{LONG}", "{name}": {value}}}'.encode()))
    assert answer.status == 404
    assert (answer.error["param"], answer.error["type"]) == ("model", "not_found_error")
    assert server.model in answer.error["message"]
    good.check()


TOKENIZE: list[tuple[str, dict[str, Any]]] = [
    ("/tokenize", {}),
    ("/tokenize", {"prompt": 5}),
    ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
    ("/tokenize", {"prompt": "a", "no_such_field": 1}),
    ("/tokenize", {"messages": [{"role": "user"}]}),
    ("/tokenize", {"prompt": "a", "add_special_tokens": "yes"}),
    ("/detokenize", {}),
    ("/detokenize", {"tokens": "abc"}),
    ("/detokenize", {"tokens": [1, 999_999]}),
    ("/detokenize", {"tokens": [-1]}),
    ("/detokenize", {"tokens": [1.5]}),
    ("/detokenize", {"tokens": [True]}),
]


@pytest.mark.parametrize(("path", "body"), TOKENIZE, ids=lambda value: str(value)[:50])
def test_bad_values_of_the_tokenizer_routes(
    server: RunningServer, good: GoodStreams, path: str, body: dict[str, Any]
) -> None:
    answer = exchange(server.url, post(server.url, path, json.dumps(body).encode()))
    assert answer.status == 400
    assert answer.error["param"]
    good.check()
