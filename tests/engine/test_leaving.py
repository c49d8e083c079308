"""Callers that leave: a stream that is left or dropped, an interrupt, a model that is forgotten without being closed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from pagoda import LLM, AsyncLLM
from pagoda.progress import TerminalProgress
from pagoda.sampling_params import SamplingParams
from tests.engine.gated import PATIENCE, Gate, in_thread, put_before, threads_end

SHORT = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)


@pytest.fixture
def llm(tiny_model: str) -> Iterator[LLM]:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        yield llm


@pytest.fixture
def gate(llm: LLM) -> Iterator[Gate]:
    gate = put_before(llm._engine.client._engine._core)
    yield gate
    gate.allow()


def nothing_is_left(llm: LLM) -> bool:
    """By the end of another request the engine has taken in all that was sent before."""
    llm.submit("probe", SHORT).result(PATIENCE)
    kv = llm._engine.client._engine._core.scheduler.kv
    return llm.num_open == 0 and kv.num_free_blocks == kv.num_blocks


@pytest.mark.parametrize("leave", ["break", "close", "drop"])
def test_leaving_a_stream_early_ends_the_request(llm: LLM, gate: Gate, leave: str) -> None:
    gate.allow(1)
    stream = llm.stream("Hello", LONG)
    if leave == "break":
        for _ in stream:
            break
        del stream
    else:
        next(stream)
        if leave == "close":
            stream.close()  # type: ignore[attr-defined]
        else:
            del stream
    (request_id,) = gate.steps[0]
    gate.allow()
    assert nothing_is_left(llm)
    # The step after may have begun before the reader left.
    assert gate.steps_of(request_id) <= 2


def test_a_stream_that_is_never_read_computes_nothing(llm: LLM, gate: Gate) -> None:
    stream = llm.stream("Hello", LONG)
    chat = llm.stream_chat([{"role": "user", "content": "Hi"}], LONG)
    gate.allow()
    assert llm.num_open == 0
    del stream, chat
    assert nothing_is_left(llm)
    assert len({request_id for ids in gate.steps for request_id in ids}) == 1  # the probe's


def control_c_in(monkeypatch: pytest.MonkeyPatch, where: str, gate: Gate) -> None:
    """Have Control-C come while `where` is called for the second time, and the engine is amid a step."""
    calls = []

    def interrupted(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            gate.holds()
            raise KeyboardInterrupt

    class Bars(TerminalProgress):
        __call__ = interrupted  # type: ignore[assignment]

    class Queue(SimpleQueue):  # type: ignore[type-arg]
        get = interrupted  # type: ignore[assignment]

    if where == "bars":
        monkeypatch.setattr("pagoda.llm.TerminalProgress", Bars)
    else:
        calls.append(())  # there is nothing to get before the first step has passed
        monkeypatch.setattr("pagoda.llm.SimpleQueue", Queue)


@pytest.mark.parametrize(("where", "num_open"), [("bars", 2), ("results", 3)])
def test_an_interrupt_cancels_what_is_open(
    llm: LLM, gate: Gate, monkeypatch: pytest.MonkeyPatch, where: str, num_open: int
) -> None:
    control_c_in(monkeypatch, where, gate)
    with pytest.raises(KeyboardInterrupt):
        in_thread(lambda: llm.generate(["one", "two", "three"], LONG)).result(PATIENCE)
    assert llm.num_open == num_open
    begun = {request_id for ids in gate.steps for request_id in ids}
    gate.allow()
    assert nothing_is_left(llm)
    # Those whose step was held went on until its end, and the others never began.
    assert all(gate.steps_of(request_id) <= 1 for request_id in begun)


@pytest.mark.parametrize("kind", [LLM, AsyncLLM])
def test_forgetting_it_without_closing_ends_its_threads(tiny_model: str, kind: Callable[..., LLM]) -> None:
    llm = kind(tiny_model, threads=1, num_kv_blocks=16)
    client = llm._engine.client
    forgotten = weakref.ref(llm)
    del llm
    gc.collect()
    assert forgotten() is None
    assert threads_end(client)


def test_it_lives_as_long_as_a_stream_of_it_is_read(tiny_model: str) -> None:
    deltas = []
    for delta in LLM(tiny_model, threads=1, num_kv_blocks=16).stream("Hello", SHORT):
        gc.collect()
        deltas.append(delta)
    assert sum(len(delta.token_ids) for delta in deltas) == 4
    assert deltas[-1].finish_reason == "length"


def test_it_lives_as_long_as_a_handle_of_it(tiny_model: str) -> None:
    handle = LLM(tiny_model, threads=1, num_kv_blocks=16).submit("Hello", SHORT)
    gc.collect()
    output = handle.result(PATIENCE)
    assert output.error is None
    assert len(output.outputs[0].token_ids) == 4


def test_a_request_that_nobody_waits_for_ends_and_its_forgotten_model_with_it(tiny_model: str) -> None:
    """The last to know of the model is then the output thread, which closes it."""
    llm = LLM(tiny_model, threads=1, num_kv_blocks=16)
    client = llm._engine.client
    gate = put_before(client._engine._core)
    llm.submit("Hello", SHORT)
    gate.holds()
    forgotten = weakref.ref(llm)
    del llm
    gc.collect()
    assert forgotten() is not None
    gate.allow()
    assert threads_end(client)
    assert len(gate.steps) == 4


def test_forgetting_stream_and_model_ends_both(tiny_model: str) -> None:
    stream = LLM(tiny_model, threads=1, num_kv_blocks=16).stream("Hello", LONG)
    next(stream)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("pagoda-")]
    del stream
    gc.collect()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
