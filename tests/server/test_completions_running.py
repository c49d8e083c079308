"""Completions in the hands of a test: what is taken, what is sent in one write, what is left running."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

import pytest

from pagoda.engine.outputs import CompletionDelta
from pagoda.server.generation import coalesced
from pagoda.server.mailbox import Mailbox
from tests.server.app import served
from tests.server.bodies import completions, events
from tests.server.gate import AsgiClient, Gate

PATH = "/v1/completions"
LONG: dict[str, Any] = {"prompt": "Hello", "max_tokens": 100, "ignore_eos": True, "temperature": 0}


def test_where_there_is_no_room_for_all_prompts_none_is_started(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model, max_num_seqs=1, max_waiting=2) as (app, llm):
            gate = Gate(llm)
            first = AsgiClient(app, PATH, LONG)
            while not llm.num_open:
                await asyncio.sleep(0)
            client = AsgiClient(app, PATH, {**LONG, "prompt": ["a", "b", "c"]})
            await client.finished()
            assert client.status == 429
            error = json.loads(client.text)["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
            assert llm.num_open == 1
            gate.allow()
            await first.finished()
            assert first.status == 200

    asyncio.run(run())


@pytest.mark.parametrize(("body", "field"), [({"prompt": ["a"] * 4}, "prompt"), ({"n": 4}, "n")])
def test_what_can_never_have_room_is_a_mistake_and_not_a_matter_of_time(
    tiny_model: str, body: dict[str, Any], field: str
) -> None:
    async def run() -> None:
        async with served(tiny_model, max_num_seqs=1, max_waiting=2) as (app, llm):
            client = AsgiClient(app, PATH, {**LONG, **body})
            await client.finished()
            assert client.status == 400
            error = json.loads(client.text)["error"]
            assert error["param"] == field
            assert "at most 3 choices in all" in error["message"]
            assert llm.num_open == 0

    asyncio.run(run())


def test_a_refused_prompt_is_refused_before_any_is_started(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            gate = Gate(llm)
            client = AsgiClient(app, PATH, {**LONG, "prompt": ["a", ""]})
            await client.finished()
            assert client.status == 400
            assert llm.num_open == 0
            assert gate.steps == []

    asyncio.run(run())


def test_all_choices_of_a_step_go_out_in_one_write(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            gate = Gate(llm)
            client = AsgiClient(app, PATH, {**LONG, "prompt": ["a", "b"], "n": 3, "max_tokens": 2, "stream": True})
            gate.allow()
            await client.finished()
            # The end is a write of its own.
            assert len(client.chunks) <= len(gate.steps) + 1
            assert len(completions(events(client.text))) == 6

    asyncio.run(run())


def test_what_a_slow_reader_has_missed_comes_in_one_chunk(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            client = AsgiClient(app, PATH, {**LONG, "stream": True})
            client.stop_reading()
            while not llm.num_open:
                await asyncio.sleep(0)
            while llm.num_open:
                await asyncio.sleep(0)
            client.read_again()
            await client.finished()
            assert client.status == 200
            # One write is under way when the reader stops, the next has all the rest, the last says that it is over.
            assert len(client.chunks) <= 3
            whole = AsgiClient(app, PATH, LONG)
            await whole.finished()
            assert completions(events(client.text))[0]["text"] == json.loads(whole.text)["choices"][0]["text"]

    asyncio.run(run())


def test_an_engine_that_was_closed_answers_503(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            await llm.aclose()
            for stream in (False, True):
                client = AsgiClient(app, PATH, {**LONG, "stream": stream})
                await client.finished()
                assert client.status == 503
                assert json.loads(client.text)["error"]["code"] == "engine_unavailable"

    asyncio.run(run())


def test_what_a_closing_engine_cuts_ends_with_an_error(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            gate = Gate(llm)
            streamed, whole = (AsgiClient(app, PATH, {**LONG, "stream": stream}) for stream in (True, False))
            await gate.holds()
            gate.allow(1)
            await streamed.has_chunks(1)
            await gate.holds()
            closing = asyncio.create_task(llm.aclose())
            await asyncio.sleep(0)
            gate.allow()
            await closing
            await streamed.finished()
            await whole.finished()
            assert (streamed.status, whole.status) == (200, 503)
            *pieces, last = events(streamed.text)
            assert pieces
            assert last["error"]["code"] == json.loads(whole.text)["error"]["code"] == "engine_unavailable"

    asyncio.run(run())


def test_a_defect_is_a_500_that_tells_nothing(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            with patch.object(llm, "admit", side_effect=ZeroDivisionError("secret")):
                client = AsgiClient(app, PATH, LONG)
                with pytest.raises(ZeroDivisionError):  # for the server's log
                    await client.finished()
            assert client.status == 500
            error = json.loads(client.text)["error"]
            assert (error["type"], error["code"], error["param"]) == ("server_error", "internal_error", None)
            assert "secret" not in error["message"]

    asyncio.run(run())


def test_a_defect_in_mid_stream_is_an_event(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            with patch("pagoda.server.openai.routes.CompletionChunks.chunks", side_effect=ZeroDivisionError("secret")):
                client = AsgiClient(app, PATH, {**LONG, "stream": True})
                await client.finished()
            (event,) = events(client.text)
            assert event["error"]["code"] == "internal_error"
            assert "secret" not in client.text
            while llm.num_open:
                await asyncio.sleep(0)

    asyncio.run(run())


def test_deltas_of_a_choice_are_joined_and_keep_their_order() -> None:
    arrived = [
        (0, CompletionDelta("a", 0, "x", (1,), prompt_logprobs=(None,))),
        (1, CompletionDelta("b", 0, "p", (5,))),
        (0, CompletionDelta("a", 1, "s", (7,))),
        (0, CompletionDelta("a", 0, "y", (2, 3), finish_reason="stop", stop_reason="z")),
    ]
    assert coalesced(arrived) == [
        (0, CompletionDelta("a", 0, "xy", (1, 2, 3), (), "stop", "z", prompt_logprobs=(None,))),
        *arrived[1:3],
    ]


def test_a_mailbox_wakes_the_loop_once_and_survives_a_call_that_fails() -> None:
    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        mailbox = Mailbox()
        mailbox.open()
        taken: list[int] = []
        for number in (1, 0, 2):
            mailbox.post(lambda number=number: taken.append(6 // number))  # type: ignore[misc]
        with patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as wake:
            mailbox.end_turn()
            mailbox.send([lambda: taken.append(9)])
        await asyncio.sleep(0)
        wake.assert_called_once()
        return taken

    assert asyncio.run(run()) == [6, 3, 9]
