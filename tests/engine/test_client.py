"""EngineClient over an engine that waits for permission: aborts, ids, listeners, priorities."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pagoda.core.policies import Priority
from pagoda.core.step import RunnerOutput, TokenEvent
from pagoda.engine.outputs import CompletionDelta, RequestOutput
from pagoda.errors import InvalidValueError, RequestFailedError
from pagoda.sampling_params import SamplingParams
from tests.engine.gated import PATIENCE, GatedEngine, close_while_held, gated_engine

SHORT = SamplingParams(temperature=0, max_tokens=4)
LONG = SamplingParams(temperature=0, max_tokens=60)


@pytest.fixture
def engine(tiny_model: str) -> Iterator[GatedEngine]:
    with gated_engine(tiny_model) as engine:
        yield engine


def test_after_a_stop_string_no_more_is_computed_and_its_blocks_are_free(tiny_model: str) -> None:
    with gated_engine(tiny_model) as engine:
        engine.gate.allow()
        whole = engine.run("Hello", LONG).outputs[0].text
    stop = whole[5:7]
    needed = whole.index(stop) + len(stop)
    with gated_engine(tiny_model) as engine:
        handle = engine.submit("Hello", SamplingParams(temperature=0, max_tokens=60, stop=(stop,)))
        engine.gate.allow(needed)
        output = handle.result(PATIENCE).outputs[0]
        assert (output.text, output.finish_reason) == (whole[: needed - len(stop)], "stop")
        engine.gate.allow()
        engine.run("probe", SHORT)
        assert engine.all_blocks_are_free
        # The step after may have begun before the text of this one was made.
        assert engine.gate.steps_of("Hello") <= needed + 1


def test_of_several_choices_only_the_stopped_one_ends(tiny_model: str) -> None:
    sampling = SamplingParams(temperature=1.0, seed=3, n=2, max_tokens=30)
    with gated_engine(tiny_model) as engine:
        engine.gate.allow()
        first, second = (choice.text for choice in engine.run("Hello", sampling).outputs)
    stop = next(character for character in first if character not in second)
    with gated_engine(tiny_model) as engine:
        handle = engine.submit("Hello", replace(sampling, stop=(stop,)))
        engine.gate.allow(first.index(stop) + 1)
        deltas = iter(handle)
        assert next(delta for delta in deltas if delta.finish_reason is not None).stop_reason == stop
        engine.gate.allow()
        assert [delta.finish_reason for delta in deltas if delta.finish_reason is not None] == ["length"]
        stopped = handle.result(PATIENCE)
        assert engine.client.num_open == 0
    assert [choice.text for choice in stopped.outputs] == [first[: first.index(stop)], second]
    assert [choice.finish_reason for choice in stopped.outputs] == ["stop", "length"]


def test_cancelling_ends_it_as_aborted_with_what_there_was(engine: GatedEngine) -> None:
    doomed, other = engine.submit("doomed", LONG), engine.submit("other", SHORT)
    engine.gate.allow(2)
    engine.gate.holds(3)
    doomed.cancel()
    engine.gate.allow()
    output = doomed.result(PATIENCE).outputs[0]
    assert output.finish_reason == "abort"
    assert len(output.token_ids) == 3
    assert other.result(PATIENCE).outputs == engine.run("other", SHORT).outputs
    assert engine.all_blocks_are_free
    assert engine.client.num_open == 0
    assert engine.gate.steps_of("doomed") == 3


def test_leaving_the_deltas_early_aborts(engine: GatedEngine) -> None:
    handle = engine.submit("Hello", LONG)
    engine.gate.allow(1)
    for _ in handle:
        break
    engine.gate.allow()
    assert handle.result(PATIENCE).outputs[0].finish_reason == "abort"
    assert engine.gate.steps_of("Hello") <= 2


def test_reading_all_deltas_aborts_nothing(engine: GatedEngine) -> None:
    engine.gate.allow()
    handle = engine.submit("Hello", SHORT)
    text = "".join(delta.text for delta in handle)
    output = handle.result(PATIENCE).outputs[0]
    assert (output.text, output.finish_reason, len(text)) == (text, "length", 4)


def test_the_id_of_an_open_request_is_refused_and_the_open_one_goes_on(engine: GatedEngine) -> None:
    handle = engine.submit("Hello", SHORT)
    engine.gate.holds()
    with pytest.raises(InvalidValueError) as caught:
        engine.submit("Hello", SHORT)
    assert (caught.value.field, caught.value.value) == ("request_id", "Hello")
    assert engine.client.num_open == 1
    engine.gate.allow()
    assert handle.result(PATIENCE).outputs[0].finish_reason == "length"
    assert engine.run("Hello", SHORT).outputs == handle.result().outputs  # it has ended: the id is free again


def test_a_more_urgent_request_goes_first(tiny_model: str) -> None:
    with gated_engine(tiny_model, max_num_seqs=1, policy=Priority(ageing=1000.0)) as engine:
        running = engine.submit("running", SHORT, priority=-1)
        engine.gate.holds()
        patient, equal, urgent = (
            engine.submit(name, SHORT, priority) for name, priority in (("patient", 5), ("equal", 5), ("urgent", 0))
        )
        engine.gate.allow()
        for handle in (running, patient, equal, urgent):
            assert handle.result(PATIENCE).outputs[0].finish_reason == "length"
        order = sorted(("patient", "equal", "urgent"), key=engine.gate.first_step_of)
    assert order == ["urgent", "patient", "equal"]


def test_a_lost_event_fails_its_request_alone(engine: GatedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    update = engine.core.scheduler.update

    def lossy(output: RunnerOutput) -> list[TokenEvent]:
        return [event for event in update(output) if not (event.key.request_id == "doomed" and event.index == 2)]

    monkeypatch.setattr(engine.core.scheduler, "update", lossy)
    engine.gate.allow()
    doomed, other = engine.submit("doomed", LONG), engine.submit("other", LONG)
    output = doomed.result(PATIENCE)
    assert isinstance(output.error, RequestFailedError)
    assert "tokens 2 to 2 of" in str(output.error)
    assert (output.outputs[0].finish_reason, len(output.outputs[0].token_ids)) == ("error", 2)
    assert other.result(PATIENCE).outputs[0].finish_reason == "length"
    engine.run("probe", SHORT)
    assert engine.all_blocks_are_free


class BadListener:
    """Raises where it is told to."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._ended = threading.Event()
        self.finished: list[RequestOutput] = []

    def on_delta(self, delta: CompletionDelta) -> None:
        if self._where == "on_delta":
            raise RuntimeError("no room for this")

    def on_finished(self, output: RequestOutput) -> None:
        self.finished.append(output)
        self._ended.set()
        if self._where == "on_finished":
            raise RuntimeError("no room for this")

    def wait_if(self, where: str) -> None:
        assert self._where != where or self._ended.wait(PATIENCE)


@pytest.mark.parametrize(("where", "reason", "most_steps"), [("on_delta", "error", 2), ("on_finished", "length", 4)])
def test_who_listens_badly_harms_himself_only(engine: GatedEngine, where: str, reason: str, most_steps: int) -> None:
    listener = BadListener(where)
    engine.listen("bad", LONG if where == "on_delta" else SHORT, listener)
    engine.gate.holds()
    other = engine.submit("other", LONG)
    engine.gate.allow(1)
    listener.wait_if("on_delta")  # nobody reads what comes now, so it ends with the step that is held
    engine.gate.allow()
    assert other.result(PATIENCE).outputs[0].finish_reason == "length"
    assert engine.run("probe", SHORT).error is None
    (output,) = listener.finished
    assert output.outputs[0].finish_reason == reason
    assert (output.error is not None) == (where == "on_delta")
    assert engine.gate.steps_of("bad") <= most_steps
    assert engine.client.num_open == 0
    assert engine.all_blocks_are_free


class Log:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_delta(self, delta: CompletionDelta) -> None:
        self.lines.append("delta")

    def on_finished(self, output: RequestOutput) -> None:
        self.lines.append("finished")


def test_the_end_of_a_turn_is_told_after_all_that_it_brought(engine: GatedEngine) -> None:
    log = Log()
    engine.client.after_turn(lambda: log.lines.append("turn"))
    engine.listen("Hello", SamplingParams(temperature=1.0, max_tokens=3, n=2), log)
    engine.gate.holds()
    engine.listen("never done", LONG, log)
    engine.gate.allow(1)
    engine.gate.holds()
    close_while_held(engine.client, engine.gate)
    # The second step has both choices' second tokens and the other's first; closing ends both requests.
    assert log.lines == ["delta"] * 2 + ["turn"] + ["delta"] * 3 + ["turn"] + ["finished"] * 2 + ["turn"]
