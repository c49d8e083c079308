"""What the official client raises for a mistake: its own typed errors, with the field in `param` and the limit in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.server.process import RunningServer

MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(server: RunningServer) -> str:
    return server.model


@pytest.mark.parametrize(
    ("fields", "param", "limit"),
    [
        ({"temperature": -1}, "temperature", "from 0.0 to 100.0"),
        ({"max_tokens": 100_000}, "max_tokens", "at most 2"),
        ({"n": 1000}, "n", "from 1 to 128"),
        ({"stop": [str(number) for number in range(17)]}, "stop", "at most 16"),
        ({"logit_bias": {"999999": 1}}, "logit_bias", "258"),
        ({"extra_body": {"no_such_field": 1}}, "no_such_field", ""),
    ],
)
def test_a_bad_value(client: OpenAI, model: str, fields: dict[str, Any], param: str, limit: str) -> None:
    for create in (
        lambda: client.completions.create(model=model, prompt="Hi", **fields),
        lambda: client.completions.create(model=model, prompt="Hi", stream=True, **fields),
        lambda: client.chat.completions.create(model=model, messages=MESSAGES, **fields),
        lambda: client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **fields),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            create()
        error = caught.value
        assert (error.param or "").startswith(param)
        assert error.type == "invalid_request_error"
        assert param in error.message
        assert limit in error.message


def test_a_model_that_is_not_there(client: OpenAI, model: str) -> None:
    for call in (
        lambda: client.models.retrieve("gpt-9"),
        lambda: client.completions.create(model="gpt-9", prompt="Hi"),
        lambda: client.chat.completions.create(model="gpt-9", messages=MESSAGES),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert caught.value.param == "model"
        assert "gpt-9" in caught.value.message
        assert model in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"store": True},
    ],
)
def test_what_is_not_supported_is_refused_by_name(client: OpenAI, model: str, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, **fields)
    (name,) = fields
    assert (caught.value.param or "").startswith(name)


def test_a_client_cannot_bring_a_chat_template(client: OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, extra_body={"chat_template": "{{ 1 }}"})
    assert caught.value.param == "chat_template"
