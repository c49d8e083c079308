"""/tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.bodies import post, refusal
from tests.server.conftest import RunningServer
from tests.tiny_model import IM_END, IM_START, VOCAB_SIZE

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("text", ["Hello", "", "aé€<|im_end|>", "x" * 20_000])
def test_a_text_and_back(server: RunningServer, text: str) -> None:
    answer = post(server, "/tokenize", {"prompt": text})
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 256
    assert post(server, "/detokenize", {"tokens": answer["tokens"]}) == {"prompt": text}


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
