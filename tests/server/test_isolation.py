"""What fails inside ends the requests it concerns, in OpenAI's form also in the middle of a stream; the others go on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pagoda.core.step import RowResult, RunnerOutput, SchedulerOutput
from pagoda.llm import AsyncLLM
from tests.server.app import served
from tests.server.gate import AsgiClient

PROMPT: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
CURSED = 13  # tokens: the length of the prompt whose rows fail


class FailsRows:
    """A runner in front of the real one: rows of a prompt of `CURSED` tokens fail at their fifth token."""

    def __init__(self, llm: AsyncLLM) -> None:
        core = llm._engine.client._engine._core
        self._inner, core._runner = core._runner, self
        self._cursed: set[str] = set()
        self._step: SchedulerOutput | None = None

    def submit(self, step: SchedulerOutput) -> None:
        self._step = step
        self._cursed |= {new.key.request_id for new in step.new if new.num_prompt_tokens == CURSED}
        self._inner.submit(step)

    def collect(self) -> RunnerOutput:
        output = self._inner.collect()
        assert self._step is not None
        failing = {row.key for row in self._step.rows if row.key.request_id in self._cursed and row.start >= CURSED + 4}
        rows = (RowResult(row.key, error="no number") if row.key in failing else row for row in output.rows)
        return RunnerOutput(output.step, tuple(rows))

    def close(self) -> None:
        self._inner.close()


class FailsSteps(FailsRows):
    """Every step that such a row is in fails as a whole."""

    def submit(self, step: SchedulerOutput) -> None:
        super().submit(step)
        if any(row.key.request_id in self._cursed for row in step.rows):
            self._inner.collect()
            raise RuntimeError("the device is on fire")


def events(client: AsgiClient) -> list[dict[str, Any]]:
    lines = [event.removeprefix("data: ") for event in client.text.split("\n\n") if event]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text(client: AsgiClient) -> str:
    return "".join(choice["text"] for event in events(client) for choice in event["choices"])


def test_an_error_in_the_middle_of_a_stream_is_its_last_event(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            alone = AsgiClient(app, "/v1/completions", {**PROMPT, "stream": True})
            await alone.finished()
            FailsRows(llm)
            cursed = AsgiClient(app, "/v1/completions", {**PROMPT, "prompt": "x" * CURSED, "stream": True})
            others = [AsgiClient(app, "/v1/completions", {**PROMPT, "stream": True}) for _ in range(4)]
            for client in (cursed, *others):
                await client.finished()
            *pieces, last = events(cursed)
            assert cursed.status == 200
            assert len("".join(event["choices"][0]["text"] for event in pieces)) >= 2
            assert last["error"]["type"] == "server_error"
            assert last["error"]["message"] == "no number"
            for client in others:
                assert text(client) == text(alone)
            assert llm.stats.num_free_blocks == llm.stats.num_blocks

    asyncio.run(run())


def test_an_error_while_the_answer_is_awaited_is_its_status(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            FailsRows(llm)
            cursed = AsgiClient(app, "/v1/completions", {**PROMPT, "prompt": ["fine", "x" * CURSED]})
            other = AsgiClient(app, "/v1/completions", PROMPT)
            await cursed.finished()
            await other.finished()
            assert (cursed.status, other.status) == (500, 200)
            assert json.loads(cursed.text)["error"]["message"] == "no number"

    asyncio.run(run())


def test_after_a_failed_step_the_server_goes_on(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            alone = AsgiClient(app, "/v1/completions", PROMPT)
            await alone.finished()
            FailsSteps(llm)
            cursed = AsgiClient(app, "/v1/completions", {**PROMPT, "prompt": "x" * CURSED})
            await cursed.finished()
            assert cursed.status == 500
            assert "the device is on fire" in json.loads(cursed.text)["error"]["message"]
            again = AsgiClient(app, "/v1/completions", PROMPT)
            await again.finished()
            assert json.loads(again.text)["choices"] == json.loads(alone.text)["choices"]

    asyncio.run(run())


def test_when_the_engine_is_gone_every_answer_says_so(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            await llm.aclose()
            for stream in (False, True):
                client = AsgiClient(app, "/v1/completions", {**PROMPT, "stream": stream})
                await client.finished()
                assert client.status == 503
                assert json.loads(client.text)["error"]["code"] == "engine_unavailable"

    asyncio.run(run())
