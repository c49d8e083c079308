"""Trouble 26, from outside: a log-probability of -inf gives 500. Right: an answer in numbers that JSON has."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.server.app import served
from tests.server.gate import AsgiClient
from tests.tiny_model import write_tiny_model

LOWEST = -9999.0  # what OpenAI documents for a token beyond the likely ones
ASKED: dict[str, Any] = {"model": "tiny", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
BANNED = {str(token_id): -100 for token_id in range(250)}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("/v1/completions", {"prompt": "Hi", "logprobs": 20, "logit_bias": BANNED}),
    "scored prompt": ("/v1/completions", {"prompt": "Hi", "logprobs": 20, "echo": True, "max_tokens": 0}),
    "prompt_logprobs": ("/v1/completions", {"prompt": "Hi", "prompt_logprobs": 20}),
    "chat": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Hi"}],
            "logprobs": True,
            "top_logprobs": 20,
            "logit_bias": {str(token_id): 100 for token_id in range(2)},
        },
    ),
}


@pytest.fixture(scope="module")
def certain_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """So sure of itself that every other token's log-probability is beyond float32's usual range, or -inf."""
    directory: Path = write_tiny_model(tmp_path_factory.mktemp("models") / "certain")
    weights = load_file(directory / "model.safetensors")
    weights["model.norm.weight"] = np.full_like(weights["model.norm.weight"], 1e32)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return str(directory)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_every_answer_is_strict_json(certain_model: str, name: str, stream: bool) -> None:
    path, body = REQUESTS[name]

    async def run() -> None:
        async with served(certain_model) as (app, _):
            client = AsgiClient(app, path, {**ASKED, **body, "stream": stream})
            await client.finished()
            assert client.status == 200, client.text
            pieces = [piece.removeprefix("data: ") for piece in client.text.split("\n\n")] if stream else [client.text]
            values = [strict(piece) for piece in pieces if piece not in {"", "[DONE]"}]
            logprobs = list(numbers(values))
            assert len(logprobs) > 20
            assert all(math.isfinite(number) for number in logprobs)
            assert min(logprobs) <= LOWEST

    asyncio.run(run())


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def numbers(value: Any) -> Any:
    """Every number that is not an integer, wherever it stands."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, (list, dict)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from numbers(entry)
