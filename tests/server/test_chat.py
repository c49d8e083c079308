"""/v1/chat/completions: what its bodies have in them."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.server.openai.schemas import ChatAnswer, ChatChunk
from tests.server.bodies import post, refusal, stream
from tests.server.conftest import RunningServer

PATH = "/v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "seed": 3}
EVERYTHING: dict[str, Any] = {
    **HELLO,
    "n": 3,
    "logprobs": True,
    "top_logprobs": 2,
    "prompt_logprobs": 1,
    "return_parameters": True,
}


@pytest.mark.parametrize("asked", [HELLO, EVERYTHING])
def test_bodies_are_what_the_schema_says(server: RunningServer, asked: dict[str, Any]) -> None:
    ChatAnswer.model_validate(post(server, PATH, asked), strict=True)
    for chunk in stream(server, PATH, {**asked, "stream_options": {"include_usage": True}}):
        ChatChunk.model_validate(chunk, strict=True)


def test_the_first_chunk_has_the_role_and_the_last_the_reason(server: RunningServer) -> None:
    chunks = [chunk["choices"][0] for chunk in stream(server, PATH, {**HELLO, "ignore_eos": True})]
    assert chunks[0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all("role" not in chunk["delta"] for chunk in chunks[1:])


def test_extras_stand_at_the_top_of_the_first_chunk(server: RunningServer) -> None:
    whole, chunks = post(server, PATH, EVERYTHING), stream(server, PATH, EVERYTHING)
    assert whole["parameters"]["seed"] == 3
    assert chunks[0]["parameters"] == whole["parameters"]
    assert len(whole["prompt_logprobs"]) == whole["usage"]["prompt_tokens"]
    assert whole["prompt_logprobs"][0] is None
    (shown,) = [chunk["prompt_logprobs"] for chunk in chunks if "prompt_logprobs" in chunk]
    assert [entry and sorted(entry) for entry in shown] == [
        entry and sorted(entry) for entry in whole["prompt_logprobs"]
    ]


def test_text_parts_are_one_text(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    answers = [
        post(server, PATH, {**HELLO, "messages": [{"role": "user", "content": content}]})
        for content in (parts, "Hel\nlo")
    ]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_completion_tokens": 300, "max_tokens": None}, "max_completion_tokens"),
        ({"max_tokens": 300}, "max_tokens"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0].type"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
    ],
)
def test_a_refusal_names_the_callers_own_field(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    error = refusal(server, PATH, {**HELLO, **fields})
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: got ")
