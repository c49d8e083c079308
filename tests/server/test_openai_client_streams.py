"""A stream, joined, is the answer that is not streamed: texts, ends, usage, log-probabilities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from openai.types import CompletionUsage

from tests.server.process import RunningServer
from tests.tiny_model import IM_END

MESSAGES: list[Any] = [{"role": "user", "content": "Tell me"}]
SEEDED: dict[str, Any] = {"seed": 11, "max_tokens": 20}
VARIANTS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {},
    "several choices": {"n": 3},
    "a stop string": {"stop": ["e", "a", "o"], "n": 4},
    "an end token": {"logit_bias": {str(IM_END): 4}, "n": 4},
    "half characters": {"max_tokens": 60, "n": 2},
    "one token": {"max_tokens": 1},
}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(server: RunningServer) -> str:
    return server.model


def close(got: Any, expected: Any) -> bool:
    """Equal, but for the last digits of numbers: a step's other rows may change those in the torch reference."""
    if isinstance(expected, float):
        return got == pytest.approx(expected, abs=1e-4)
    if isinstance(expected, dict):
        return got.keys() == expected.keys() and all(close(got[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(got) == len(expected) and all(map(close, got, expected))
    return got == expected


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_streamed_completion_is_the_whole_one(client: OpenAI, model: str, variant: str) -> None:
    asked = {"model": model, "prompt": ["Hello", "Good day"], "logprobs": 2, **SEEDED, **VARIANTS[variant]}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    texts: dict[int, str] = defaultdict(str)
    logprobs: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    ends: dict[int, str] = {}
    for chunk in chunks:
        assert (chunk.id, chunk.object, chunk.model) == (chunks[0].id, "text_completion", model)
        for choice in chunk.choices:
            assert choice.index not in ends
            texts[choice.index] += choice.text
            if choice.logprobs is not None:
                for name, values in choice.logprobs.to_dict().items():
                    logprobs[choice.index][name] += values  # type: ignore[arg-type, operator]
            if choice.finish_reason is not None:
                ends[choice.index] = choice.finish_reason
    for choice in whole.choices:
        assert texts[choice.index] == choice.text
        assert ends[choice.index] == choice.finish_reason
        assert choice.logprobs is not None
        assert close(
            dict(logprobs[choice.index]),
            {name: values for name, values in choice.logprobs.to_dict().items() if values},
        )
    assert chunks[-1].choices == []
    assert counted(chunks[-1].usage) == counted(whole.usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_streamed_chat_is_the_whole_one(client: OpenAI, model: str, variant: str) -> None:
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
    asked |= {**SEEDED, **VARIANTS[variant]}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    texts: dict[int, str] = defaultdict(str)
    logprobs: dict[int, list[Any]] = defaultdict(list)
    ends: dict[int, str] = {}
    roles: dict[int, list[str]] = defaultdict(list)
    for chunk in chunks:
        assert (chunk.id, chunk.object, chunk.model) == (chunks[0].id, "chat.completion.chunk", model)
        for choice in chunk.choices:
            assert choice.index not in ends
            texts[choice.index] += choice.delta.content or ""
            if choice.delta.role is not None:
                roles[choice.index].append(choice.delta.role)
            if choice.logprobs is not None:
                logprobs[choice.index] += choice.logprobs.content or []
            if choice.finish_reason is not None:
                ends[choice.index] = choice.finish_reason
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert ends[choice.index] == choice.finish_reason
        assert roles[choice.index] == ["assistant"]
        assert choice.logprobs is not None
        assert close(
            [entry.to_dict() for entry in logprobs[choice.index]],
            [entry.to_dict() for entry in choice.logprobs.content or []],
        )
    assert chunks[-1].choices == []
    assert counted(chunks[-1].usage) == counted(whole.usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_without_include_usage_no_chunk_has_usage_or_lacks_choices(client: OpenAI, model: str) -> None:
    chunks = list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **SEEDED))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_echo_is_streamed_as_well(client: OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": "Hello", "echo": True, "logprobs": 1, **SEEDED}
    whole = client.completions.create(**asked).choices[0]
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    assert whole.text.startswith("Hello")
    assert whole.logprobs is not None
    tokens = [
        token
        for chunk in chunks
        for logprobs in [chunk.choices[0].logprobs]
        if logprobs
        for token in logprobs.tokens or []
    ]
    assert tokens == whole.logprobs.tokens


def counted(usage: CompletionUsage | None) -> CompletionUsage | None:
    """Usage without what was cached, of which the second to ask finds more."""
    return usage and usage.model_copy(update={"prompt_tokens_details": None})
