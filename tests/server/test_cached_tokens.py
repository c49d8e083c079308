"""Usage says how much of a prompt the prefix cache had; a salt keeps requests apart."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from tests.server.bodies import post, refusal, stream
from tests.server.conftest import RunningServer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
WITH_USAGE = {"stream_options": {"include_usage": True}}


def new_text(seed: str, length: int = 100) -> str:
    """One token a character; nobody else asks for it."""
    return "".join(random.Random(seed).choices(string.ascii_letters, k=length))


def cached(body: dict[str, Any]) -> int:
    count: int = body["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def ask(server: RunningServer, prompt: object, **more: object) -> int:
    return cached(post(server, COMPLETIONS, {"prompt": prompt, "max_tokens": 2, **more}))


def test_a_prompt_that_was_there_before_is_cached_but_for_its_last_block(server: RunningServer) -> None:
    text = new_text("again")
    assert ask(server, text) == 0
    assert ask(server, text) == 96
    assert ask(server, text[:97]) == 96
    assert ask(server, text[:96]) == 80
    assert ask(server, text[:50] + "!" + text[50:]) == 48


def test_several_prompts_are_added_up_and_choices_are_not(server: RunningServer) -> None:
    texts = [new_text("first", 40), new_text("second", 70)]
    assert ask(server, texts, n=2) == 0
    assert ask(server, [*texts, new_text("third")], n=2) == 32 + 64


def test_a_stream_says_the_same(server: RunningServer) -> None:
    asked = {"prompt": [new_text("streamed", 60), new_text("streamed too")], "max_tokens": 4}
    assert cached(stream(server, COMPLETIONS, {**asked, **WITH_USAGE})[-1]) == 0
    assert cached(stream(server, COMPLETIONS, {**asked, **WITH_USAGE})[-1]) == 48 + 96
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(server, COMPLETIONS, {**asked, "stream_options": options})
    assert {cached(chunk) for chunk in chunks} <= {48, 96, 48 + 96}


def test_the_next_turn_of_a_chat_has_all_but_what_is_new(server: RunningServer) -> None:
    messages = [{"role": "user", "content": new_text("a question", 30)}]
    asked = {"max_tokens": 33, "temperature": 0, "ignore_eos": True, "logit_bias": {"40": 100}}
    first = post(server, CHAT, {"messages": messages, **asked})
    answer = first["choices"][0]["message"]
    assert len(answer["content"]) == 33
    messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "And?"}]
    second = post(server, CHAT, {"messages": messages, **asked})
    computed = first["usage"]["total_tokens"] - 1  # the last token of an answer is never computed
    assert cached(first) == 0
    assert cached(second) == computed // 16 * 16
    (*_, usage) = stream(server, CHAT, {"messages": messages, **asked, **WITH_USAGE})
    assert cached(usage) == (second["usage"]["prompt_tokens"] - 1) // 16 * 16


def test_requests_of_different_salts_share_nothing(server: RunningServer) -> None:
    text = new_text("salted")
    assert ask(server, text) == 0
    assert ask(server, text, cache_salt="mine") == 0
    assert ask(server, text, cache_salt="yours") == 0
    assert ask(server, text, cache_salt="mine") == ask(server, text) == 96
    chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
    answers = [post(server, CHAT, {**chat, **salt}) for salt in ({}, {"cache_salt": "mine"}, {"cache_salt": "mine"})]
    assert [cached(answer) > 0 for answer in answers] == [False, False, True]


@pytest.mark.parametrize("salt", ["", "x" * 257, 7, ["a"], True])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_salt_is_text_of_a_bounded_length(server: RunningServer, path: str, salt: object) -> None:
    body = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "Hi"}]}
    error = refusal(server, path, {**body, "cache_salt": salt})
    assert error["param"] == "cache_salt"


def test_a_client_cannot_choose_its_tenant(server: RunningServer) -> None:
    error = refusal(server, COMPLETIONS, {"prompt": "Hi", "tenant": "another"})
    assert error["param"] == "tenant"
