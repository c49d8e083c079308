"""Faults below and above the engine end the requests they concern, and no other; nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pagoda import LLM, SamplingParams
from pagoda.core.step import RowResult, RunnerOutput, SchedulerOutput
from pagoda.engine.assembly import RequestAssembler
from pagoda.engine.core import EngineCore
from pagoda.errors import EngineClosedError, RequestFailedError

GOOD = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture
def llm(tiny_model: str) -> Iterator[LLM]:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        yield llm


class Interposed:
    """A runner in front of the real one; subclasses misbehave."""

    def __init__(self, core: EngineCore) -> None:
        self.inner = core._runner
        core._runner = self

    def submit(self, step: SchedulerOutput) -> None:
        self.inner.submit(step)

    def collect(self) -> RunnerOutput:
        return self.inner.collect()

    def close(self) -> None:
        self.inner.close()


class FailsOnce(Interposed):
    """Raises in the first step that computes a prompt of exactly so many tokens."""

    def __init__(self, core: EngineCore, where: str) -> None:
        super().__init__(core)
        self.where, self.failed = where, False

    def submit(self, step: SchedulerOutput) -> None:
        self.inner.submit(step)
        if self.where == "submit" and not self.failed:
            self.failed = True
            self.inner.collect()
            raise RuntimeError("the device is on fire")

    def collect(self) -> RunnerOutput:
        output = self.inner.collect()
        if self.where == "collect" and not self.failed:
            self.failed = True
            raise RuntimeError("the device is on fire")
        return output


class FailsRows(Interposed):
    """Reports an error for the rows of one request."""

    def __init__(self, core: EngineCore, concerned: Callable[[str], bool]) -> None:
        super().__init__(core)
        self.concerned = concerned

    def collect(self) -> RunnerOutput:
        output = self.inner.collect()
        rows = (
            RowResult(row.key, error="no number") if self.concerned(row.key.request_id) else row for row in output.rows
        )
        return RunnerOutput(output.step, tuple(rows))


def core_of(llm: LLM) -> EngineCore:
    return llm._engine.client._engine._core


@pytest.mark.parametrize("where", ["submit", "collect"])
def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(
    llm: LLM, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = llm.generate("Hello", GOOD)[0].outputs[0].text
    FailsOnce(core_of(llm), where)
    (failed,) = llm.generate("Hello", GOOD, errors="return")
    assert isinstance(failed.error, RequestFailedError)
    assert "the device is on fire" in str(failed.error)
    assert failed.outputs[0].finish_reason == "error"
    assert "the device is on fire" in caplog.text  # with its traceback, for the operator
    assert llm.generate("Hello", GOOD)[0].outputs[0].text == expected
    kv = core_of(llm).scheduler.kv
    assert kv.num_free_blocks == kv.num_blocks


def test_a_failed_row_ends_its_request_alone(llm: LLM) -> None:
    prompts = ["one", "two", "three"]
    expected = [output.outputs[0].text for output in llm.generate(prompts, GOOD)]
    first_number = next(llm._numbers) + 1
    FailsRows(core_of(llm), lambda request_id: request_id == f"request-{first_number + 1}")
    outputs = llm.generate(prompts, GOOD, errors="return")
    assert [output.outputs[0].text for output in (outputs[0], outputs[2])] == [expected[0], expected[2]]
    assert str(outputs[1].error) == "no number"


def test_a_defect_while_making_text_ends_that_request_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    take = RequestAssembler.take

    def faulty(self: RequestAssembler, event: object) -> object:
        if self.output.prompt == "cursed":
            raise ValueError("cannot be spelled")
        return take(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestAssembler, "take", faulty)
    outputs = llm.generate(["fine", "cursed", "fine"], GOOD, errors="return")
    assert "cannot be spelled" in str(outputs[1].error)
    assert outputs[0].outputs[0].text == outputs[2].outputs[0].text != ""


def test_when_the_loop_itself_fails_every_caller_hears_of_it(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: EngineCore, messages: object) -> list[object]:
        raise AssertionError("bookkeeping is wrong")

    monkeypatch.setattr(EngineCore, "turn", broken)
    (output,) = llm.generate("Hello", GOOD, errors="return")
    assert isinstance(output.error, EngineClosedError)
    assert "bookkeeping is wrong" in str(output.error)
    with pytest.raises(EngineClosedError, match="bookkeeping is wrong"):
        llm.generate("Hello", GOOD)
