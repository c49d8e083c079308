"""A client that leaves: at most the step under way is still done for it, then all its blocks are free."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pagoda.llm import AsyncLLM
from tests.server.app import served
from tests.server.gate import Aborts, Application, AsgiClient, Gate

COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 200, "ignore_eos": True}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 200,
    "ignore_eos": True,
}
REQUESTS = {
    "completion": ("/v1/completions", COMPLETION),
    "chat": ("/v1/chat/completions", CHAT),
    "several choices": ("/v1/chat/completions", {**CHAT, "n": 3}),
    "several prompts": ("/v1/completions", {**COMPLETION, "prompt": ["one", "two"], "n": 2}),
}
NUM_REQUESTS = {"several prompts": 2}  # of the engine's, where it is not one


async def next_text(app: Application) -> str:
    """A short request after all that came before: when it is answered, the engine has read every earlier message."""
    client = AsgiClient(app, "/v1/completions", {**COMPLETION, "prompt": "after", "max_tokens": 3})
    await client.finished()
    assert client.status == 200
    return client.text


def all_free(llm: AsyncLLM) -> bool:
    stats = llm.stats
    return (stats.num_free_blocks, stats.num_running, stats.num_waiting) == (stats.num_blocks, 0, 0)


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", REQUESTS)
def test_after_a_client_left_no_further_step_is_done_for_it(
    tiny_model: str, name: str, stream: bool, spec_version: str
) -> None:
    path, body = REQUESTS[name]

    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            gate, aborts = Gate(llm), Aborts(llm)
            client = AsgiClient(app, path, {**body, "stream": stream}, spec_version=spec_version)
            for _ in range(3):
                await gate.holds()
                gate.allow(1)
            await gate.holds()  # the fourth is under way
            if stream:
                await client.has_chunks(1)
            assert not all_free(llm)
            under_way = len(gate.steps)
            client.leave()
            await aborts.seen(NUM_REQUESTS.get(name, 1))
            gate.allow()
            await next_text(app)
            doomed = set(gate.steps[0])
            assert doomed
            assert not [step for step in gate.steps[under_way:] if doomed & set(step)]
            assert all_free(llm)
            await client.finished()
            assert llm.num_open == 0

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_the_queue_is_never_computed(tiny_model: str, stream: bool) -> None:
    async def run() -> None:
        async with served(tiny_model, max_num_seqs=1) as (app, llm):
            gate, aborts = Gate(llm), Aborts(llm)
            first = AsgiClient(app, "/v1/completions", {**COMPLETION, "max_tokens": 5})
            await gate.holds()
            waiting = AsgiClient(app, "/v1/completions", {**COMPLETION, "stream": stream})
            while llm.num_open < 2:
                await asyncio.sleep(0)
            waiting.leave()
            await aborts.seen()
            gate.allow()
            await first.finished()
            assert first.status == 200
            await next_text(app)
            await waiting.finished()
            assert len({request for step in gate.steps for request in step}) == 2  # the first, and the one after
            assert all_free(llm)

    asyncio.run(run())


def test_a_client_that_leaves_while_it_sends_starts_nothing(tiny_model: str) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            gate = Gate(llm)
            gate.allow()
            client = AsgiClient(app, "/v1/completions", COMPLETION, complete=False)
            await asyncio.sleep(0)
            client.leave()
            await asyncio.wait({client.task})
            await next_text(app)
            assert len({request for step in gate.steps for request in step}) == 1
            assert all_free(llm)

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False])
def test_those_who_stay_get_their_whole_text(tiny_model: str, stream: bool) -> None:
    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            body = {**COMPLETION, "temperature": 0, "max_tokens": 30, "stream": True}
            alone = AsgiClient(app, "/v1/completions", body)
            await alone.finished()
            gate, aborts = Gate(llm), Aborts(llm)
            stays = [AsgiClient(app, "/v1/completions", body) for _ in range(3)]
            leaves = AsgiClient(app, "/v1/completions", {**body, "stream": stream, "max_tokens": 200})
            for _ in range(5):
                await gate.holds()
                gate.allow(1)
            leaves.leave()
            await aborts.seen()
            gate.allow()
            for client in stays:
                await client.finished()
                assert text(client) == text(alone)
            await next_text(app)
            assert all_free(llm)

    asyncio.run(run())


def test_a_reader_that_stalls_holds_up_nobody(tiny_model: str) -> None:
    """Eight streams run to their end past one whose connection takes nothing more; the engine is done with that as well."""

    async def run() -> None:
        async with served(tiny_model) as (app, llm):
            body = {**COMPLETION, "temperature": 0, "max_tokens": 60, "stream": True}
            stalled = AsgiClient(app, "/v1/completions", {**body, "max_tokens": 20})
            stalled.stop_reading()
            others = [AsgiClient(app, "/v1/completions", body) for _ in range(8)]
            for client in others:
                await client.finished()
            assert len({text(client) for client in others}) == 1
            await next_text(app)
            assert all_free(llm)
            assert not stalled.task.done()
            stalled.read_again()
            await stalled.finished()
            assert text(others[0]).startswith(text(stalled))
            assert stalled.text.endswith("data: [DONE]\n\n")

    asyncio.run(run())


def text(client: AsgiClient) -> str:
    """What a stream of completions brought."""
    events = [line.removeprefix("data: ") for line in client.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return "".join(choice["text"] for event in events[:-1] for choice in json.loads(event)["choices"])
