"""Trouble 41: n in the millions, 500,000 stop strings. Right: bounds before work.

Counted in calls of Python functions, not in time: a refusal costs the same however far beyond the limit the value is.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pagoda.errors import InvalidValueError
from pagoda.llm import LLM, AsyncLLM
from pagoda.sampling_params import SamplingParams
from pagoda.text.tokenizer import Tokenizer
from tests.server.app import served
from tests.server.gate import AsgiClient, Gate

HUGE = 500_000
SOME_MORE = 20_000  # calls by which two refusals may differ: how the loop's turns fall, what garbage collection calls


def calls_of(function: Callable[[], object]) -> int:
    """How many functions, Python's and C's, were called in this thread while it ran."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


FIELDS: dict[str, tuple[Any, Any]] = {
    "n": (1_000, 10_000_000),
    "stop": (["x"] * 100, ["x"] * HUGE),
    "stop_token_ids": ([1] * 100, [1] * HUGE),
    "logit_bias": ({str(i): 1 for i in range(1_100)}, {str(i): 1 for i in range(300_000)}),
    "max_tokens": (1_000, 1 << 60),
}


@pytest.mark.parametrize("field", ["n", "stop", "stop_token_ids", "logit_bias"])
def test_parameters_are_refused_by_their_size(field: str) -> None:
    def refused(value: Any) -> None:
        with pytest.raises(InvalidValueError, match=field):
            SamplingParams(**{field: value})

    small, huge = (calls_of(lambda value=value: refused(value)) for value in FIELDS[field])  # type: ignore[misc]
    assert huge <= small + SOME_MORE


@pytest.mark.parametrize("field", FIELDS)
def test_over_http_nothing_is_begun(tiny_model: str, field: str) -> None:
    small, huge = FIELDS[field]

    async def run() -> None:
        async with served(tiny_model, max_body_bytes=1 << 24) as (app, llm):
            gate = Gate(llm)
            gate.allow()

            async def refused(value: Any) -> None:
                client = AsgiClient(app, "/v1/completions", {"model": "tiny", "prompt": "Hi", field: value})
                await client.finished()
                assert client.status == 400, client.text[:500]
                error = json.loads(client.text)["error"]
                assert error["param"] == field
                assert len(error["message"]) < 300

            await refused(small)
            # Reading a body costs its size, which is bounded as well: two calls for each integer in it.
            reading = 2 * len(huge) if field in {"stop_token_ids", "logit_bias"} else 0
            few = await awaited_calls(refused(small))
            assert await awaited_calls(refused(huge)) <= few + reading + SOME_MORE
            assert gate.steps == []
            assert llm.num_open == 0

    asyncio.run(run())


def test_many_prompts_with_many_choices_are_refused_as_a_whole(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model, max_n=4, max_prompts=8) as (app, llm):
            gate = Gate(llm)
            gate.allow()
            for fields, param in (({"prompt": ["a"] * 9}, "prompt"), ({"prompt": "a", "n": 5}, "n")):
                client = AsgiClient(app, "/v1/completions", {"model": "tiny", "max_tokens": 2, **fields})
                await client.finished()
                assert client.status == 400
                assert json.loads(client.text)["error"]["param"] == param
            assert gate.steps == []
            assert isinstance(llm, AsyncLLM)

    asyncio.run(run())


PROMPTS: dict[str, Any] = {
    "text": "x" * 2_000_000,
    "a message": [{"role": "user", "content": "x" * 2_000_000}],
    "a role": [{"role": "x" * 2_000_000, "content": "x"}],
    "messages": [{"role": "user", "content": "x"}] * HUGE,
    "ids": [1] * HUGE,
}


@pytest.mark.parametrize("kind", PROMPTS)
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(
    tiny_model: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        monkeypatch.setattr(Tokenizer, "encode", None)

        def refused() -> None:
            with pytest.raises(InvalidValueError, match=r"prompt: .* at most .*max_model_len is 256"):
                llm.submit(PROMPTS[kind])

        assert calls_of(refused) < HUGE // 5


async def awaited_calls(coroutine: Any) -> int:
    """The same as `calls_of`, for what is awaited: everything in the loop's thread until then."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        await coroutine
    finally:
        sys.setprofile(None)
    return count
