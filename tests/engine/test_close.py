"""Closing in the middle of work: whoever waits hears of it, whoever closes, and both threads end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from pagoda import LLM, AsyncLLM
from pagoda.engine.client import EngineClient
from pagoda.engine.handle import AsyncHandle
from pagoda.engine.outputs import CompletionDelta, RequestOutput
from pagoda.errors import EngineClosedError
from pagoda.sampling_params import SamplingParams
from tests.engine.gated import (
    PATIENCE,
    GatedEngine,
    close_while_held,
    closing_began,
    gated_engine,
    in_thread,
    put_before,
    threads_end,
)

LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


@pytest.fixture
def engine(tiny_model: str) -> Iterator[GatedEngine]:
    with gated_engine(tiny_model) as engine:
        yield engine


def was_closed(output: RequestOutput) -> bool:
    reasons = {choice.finish_reason for choice in output.outputs}
    return isinstance(output.error, EngineClosedError) and reasons == {"error"}


def test_every_open_handle_hears_of_it(engine: GatedEngine) -> None:
    handles = [engine.submit("one", LONG)]
    engine.gate.holds()
    handles += [engine.submit(name, LONG) for name in ("two", "three")]
    close_while_held(engine.client, engine.gate)
    assert all(was_closed(handle.result(PATIENCE)) for handle in handles)
    deltas = [in_thread(lambda handle=handle: list(handle)).result(PATIENCE) for handle in handles]  # type: ignore[misc]
    assert [len(each) for each in deltas] == [1, 0, 0]  # only the first was in the step that was held
    assert engine.threads_end
    assert engine.client.num_open == 0
    with pytest.raises(EngineClosedError, match="closed"):
        engine.submit("late", LONG)


def test_who_waits_for_room_hears_of_it(tiny_model: str) -> None:
    with gated_engine(tiny_model) as engine:
        engine.client.max_open = 1
        engine.submit("one", LONG)
        waiting = threading.Event()
        wait = engine.client._room.wait

        def told(timeout: float | None = None) -> bool:
            waiting.set()
            return wait(timeout)

        engine.client._room.wait = told  # type: ignore[method-assign]
        admitted = engine.admit("two", LONG)
        blocked = in_thread(lambda: engine.client.submit(admitted, Closes(engine.client), wait=True))
        assert waiting.wait(PATIENCE)
        close_while_held(engine.client, engine.gate)
        with pytest.raises(EngineClosedError):
            blocked.result(PATIENCE)


def test_a_call_of_generate_raises(tiny_model: str) -> None:
    llm = LLM(tiny_model, threads=1, num_kv_blocks=64)
    gate = put_before(llm._engine.client._engine._core)
    generating = in_thread(lambda: llm.generate(["one", "two"], LONG))
    gate.holds()
    close_while_held(llm._engine.client, gate)
    with pytest.raises(EngineClosedError):
        generating.result(PATIENCE)
    assert threads_end(llm._engine.client)


def test_a_stream_raises(tiny_model: str) -> None:
    llm = LLM(tiny_model, threads=1, num_kv_blocks=64)
    gate = put_before(llm._engine.client._engine._core)
    reading = in_thread(lambda: list(llm.stream("Hello", LONG)))
    gate.holds()
    close_while_held(llm._engine.client, gate)
    with pytest.raises(EngineClosedError):
        reading.result(PATIENCE)


def test_every_asyncio_task_raises(tiny_model: str) -> None:
    async def run() -> list[object]:
        llm = AsyncLLM(tiny_model, threads=1, num_kv_blocks=64)
        gate = put_before(llm._engine.client._engine._core)

        async def stream() -> list[CompletionDelta]:
            return [delta async for delta in llm.stream("two", LONG)]

        tasks = [asyncio.create_task(llm.generate("one", LONG)), asyncio.create_task(stream())]
        await asyncio.to_thread(gate.holds)
        await asyncio.to_thread(close_while_held, llm._engine.client, gate)
        _, hanging = await asyncio.wait(tasks, timeout=PATIENCE)
        assert not hanging
        return [task.exception() for task in tasks]

    assert [type(error) for error in asyncio.run(run())] == [EngineClosedError, EngineClosedError]


class Closes:
    """A listener that closes the engine, in its output thread."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._finished = threading.Event()
        self.outputs: list[RequestOutput] = []

    def on_delta(self, delta: CompletionDelta) -> None:
        self._client.close()

    def on_finished(self, output: RequestOutput) -> None:
        self.outputs.append(output)
        self._finished.set()

    def wait(self) -> None:
        assert self._finished.wait(PATIENCE), "nobody told the listener of the end"


def test_a_listener_may_close_it(engine: GatedEngine) -> None:
    listener = Closes(engine.client)
    began = closing_began(engine.client)
    engine.listen("closes", LONG, listener)
    other = engine.submit("other", LONG)
    engine.gate.allow(1)
    assert began.wait(PATIENCE)
    engine.gate.allow()
    listener.wait()
    assert was_closed(other.result(PATIENCE))
    assert [was_closed(output) for output in listener.outputs] == [True]
    assert engine.threads_end


def test_it_may_be_closed_in_the_engine_s_own_thread(engine: GatedEngine) -> None:
    """As by the garbage collector, which runs in any thread."""
    handle = engine.submit("Hello", LONG)
    engine.gate.holds()
    closed_in: list[str] = []

    def close() -> None:
        closed_in.append(threading.current_thread().name)
        engine.client.close()

    engine.gate.on_collect = close
    engine.gate.allow(1)
    assert was_closed(handle.result(PATIENCE))
    assert engine.threads_end
    assert closed_in == ["pagoda-engine"]


def run_in_loop(engine: GatedEngine, scenario: Callable[[AsyncHandle], object]) -> object:
    async def run() -> object:
        handle = AsyncHandle("Hello", engine.client.abort)
        engine.listen("Hello", LONG, handle)
        await asyncio.to_thread(engine.gate.holds)
        return await asyncio.wait_for(scenario(handle), PATIENCE)  # type: ignore[arg-type]

    return asyncio.run(run())


def test_of_two_tasks_that_wait_one_may_be_cancelled(engine: GatedEngine) -> None:
    async def scenario(handle: AsyncHandle) -> RequestOutput:
        first, second = (asyncio.create_task(handle.result()) for _ in range(2))
        await asyncio.sleep(0)  # both wait now
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        engine.gate.allow()
        return await second

    output = run_in_loop(engine, scenario)
    assert isinstance(output, RequestOutput)
    assert (output.outputs[0].finish_reason, len(output.outputs[0].token_ids)) == ("length", 60)


def test_when_the_last_task_that_waits_is_cancelled_the_request_ends(engine: GatedEngine) -> None:
    async def scenario(handle: AsyncHandle) -> RequestOutput:
        tasks = [asyncio.create_task(handle.result()) for _ in range(2)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        engine.gate.allow()
        return await handle.result()

    output = run_in_loop(engine, scenario)
    assert isinstance(output, RequestOutput)
    assert (output.outputs[0].finish_reason, len(output.outputs[0].token_ids)) == ("abort", 1)
    assert engine.gate.steps_of("Hello") == 1


def test_leaving_an_asyncio_iteration_early_ends_the_request(engine: GatedEngine) -> None:
    async def scenario(handle: AsyncHandle) -> RequestOutput:
        engine.gate.allow(1)
        deltas = handle.__aiter__()
        await deltas.__anext__()
        await deltas.aclose()  # type: ignore[attr-defined]
        engine.gate.allow()
        return await handle.result()

    output = run_in_loop(engine, scenario)
    assert isinstance(output, RequestOutput)
    assert output.outputs[0].finish_reason == "abort"
    assert engine.gate.steps_of("Hello") <= 2
