"""/tokenize and /detokenize."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pagoda.text.tokenizer import Tokenizer
from tests.server.app import served
from tests.server.bodies import post, refusal
from tests.server.conftest import RunningServer
from tests.server.gate import AsgiClient
from tests.tiny_model import IM_END, IM_START, VOCAB_SIZE

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("text", ["Hello", "", "aé€<|im_end|>", "x" * 256])
def test_a_text_and_back(server: RunningServer, text: str) -> None:
    answer = post(server, "/tokenize", {"prompt": text})
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 256
    assert post(server, "/detokenize", {"tokens": answer["tokens"]}) == {"prompt": text}


def test_a_text_that_is_somewhat_too_long_is_counted(server: RunningServer) -> None:
    answer = post(server, "/tokenize", {"prompt": "€" * 3_000})  # of three bytes, each a token
    assert (answer["count"], answer["max_model_len"]) == (9_000, 256)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "x" * 20_000}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "x" * 20_000}]}, "messages"),
        ("/tokenize", {"messages": MESSAGES * 257}, "messages"),
        ("/detokenize", {"tokens": [1] * 257}, "tokens"),
    ],
    ids=["text", "message", "messages", "tokens"],
)
def test_what_is_too_long_for_a_prompt_is_refused_before_it_is_worked_on(
    tiny_model: str, path: str, body: dict[str, Any], param: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> AsgiClient:
        async with served(tiny_model) as (app, _):
            monkeypatch.setattr(Tokenizer, "encode", None)
            monkeypatch.setattr(Tokenizer, "decode", None)
            client = AsgiClient(app, path, body)
            await client.finished()
            return client

    client = asyncio.run(run())
    assert client.status == 400, client.text[:500]
    error = json.loads(client.text)["error"]
    assert error["param"] == param
    assert "max_model_len is 256" in error["message"]


def test_messages_become_the_prompt_that_a_chat_has(server: RunningServer) -> None:
    answer = post(server, "/tokenize", {"messages": MESSAGES, "model": "tiny"})
    assert answer["tokens"][0] == IM_START
    assert IM_END in answer["tokens"]
    chat = post(server, "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1})
    assert chat["usage"]["prompt_tokens"] == answer["count"]


@pytest.mark.parametrize(
    ("path", "body", "param", "status"),
    [
        ("/tokenize", {}, "prompt", 400),
        ("/tokenize", {"prompt": "Hi", "messages": MESSAGES}, "prompt", 400),
        ("/tokenize", {"prompt": 5}, "prompt", 400),
        ("/tokenize", {"prompt": "Hi", "x": 1}, "x", 400),
        ("/tokenize", {"prompt": "Hi", "model": "other"}, "model", 404),
        ("/tokenize", {"prompt": "Hi", "model": 1}, "model", 400),
        ("/tokenize", {"prompt": "Hi", "add_special_tokens": 1}, "add_special_tokens", 400),
        ("/tokenize", {"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens", 400),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content", 400),
        ("/detokenize", {}, "tokens", 400),
        ("/detokenize", {"tokens": "Hi"}, "tokens", 400),
        ("/detokenize", {"tokens": [1, VOCAB_SIZE]}, "tokens[1]", 400),
        ("/detokenize", {"tokens": [1, True]}, "tokens[1]", 400),
    ],
)
def test_a_bad_request_is_refused_by_field(
    server: RunningServer, path: str, body: dict[str, Any], param: str, status: int
) -> None:
    assert refusal(server, path, body, status)["param"] == param
