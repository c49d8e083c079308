"""What becomes of a step's results: tokens, ends, errors."""

from __future__ import annotations

import pytest

from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler
from pagoda.core.step import RequestKey, RowResult, RunnerOutput, TokenEvent, TokenLogprobs
from pagoda.errors import InvariantError
from tests.core.driver import Driver, alone, make_request, make_scheduler, results

A = RequestKey("a", 0)


def scheduler_with(*requests: Request) -> Scheduler:
    scheduler = make_scheduler()
    for request in requests:
        scheduler.add(request)
    return scheduler


def turn(scheduler: Scheduler, token_id: int = 1) -> list[TokenEvent]:
    return scheduler.update(results(scheduler.schedule(), token_id))


def test_tokens_come_with_their_index_and_end_at_max_tokens() -> None:
    scheduler = scheduler_with(make_request("a", max_tokens=2))
    assert turn(scheduler, 8) == [TokenEvent(A, 0, (8,))]
    assert turn(scheduler, 9) == [TokenEvent(A, 1, (9,), finish_reason="length")]
    assert not scheduler.has_unfinished
    assert scheduler.kv.num_free_blocks == scheduler.kv.num_blocks


@pytest.mark.parametrize("ends", [{"end_token_ids": frozenset({5})}, {"stop_token_ids": (4, 5)}])
def test_an_end_or_stop_token_ends_and_is_not_counted(ends: dict[str, object]) -> None:
    scheduler = scheduler_with(make_request("a", max_tokens=9, **ends))
    turn(scheduler, 3)
    assert turn(scheduler, 5) == [TokenEvent(A, 1, finish_reason="stop", stop_token_id=5)]


def test_an_end_token_in_the_last_place_is_still_a_stop() -> None:
    scheduler = scheduler_with(make_request("a", max_tokens=1, end_token_ids=frozenset({5})))
    assert turn(scheduler, 5) == [TokenEvent(A, 0, finish_reason="stop", stop_token_id=5)]


def test_nothing_ends_before_min_tokens() -> None:
    scheduler = scheduler_with(make_request("a", max_tokens=9, min_tokens=2, end_token_ids=frozenset({5})))
    assert [event.token_ids for _ in range(2) for event in turn(scheduler, 5)] == [(5,), (5,)]
    assert turn(scheduler, 5)[0].finish_reason == "stop"


def test_log_probabilities_are_passed_on() -> None:
    scheduler = scheduler_with(make_request("a", logprobs=0))
    step = scheduler.schedule()
    logprobs = TokenLogprobs((8,), (-0.5,), (1,))
    (event,) = scheduler.update(RunnerOutput(step.step, (RowResult(A, 8, logprobs),)))
    assert event.logprobs == (logprobs,)


def test_scoring_a_prompt_samples_nothing() -> None:
    driver = Driver(make_scheduler(max_batched_tokens=4, prefill_chunk=4))
    request = make_request("a", 10, max_tokens=0, prompt_logprobs=2)
    driver.add(request)
    driver.finish()
    assert not any(row.samples for step in driver.steps for row in step.rows)
    received = driver.received[A]
    assert (received.token_ids, received.finish_reason, len(received.prompt_logprobs)) == ([], "length", 9)
    assert received == alone(request)


def test_an_error_in_a_row_ends_that_request_alone() -> None:
    scheduler = scheduler_with(make_request("a"), make_request("b"))
    step = scheduler.schedule()
    events = scheduler.update(RunnerOutput(step.step, (RowResult(A, error="NaN"), RowResult(RequestKey("b", 0), 1))))
    assert events == [
        TokenEvent(A, 0, finish_reason="error", error="NaN"),
        TokenEvent(RequestKey("b", 0), 0, (1,)),
    ]
    assert [request.key.request_id for request in scheduler.running] == ["b"]


def test_a_step_that_failed_ends_its_own_requests_alone() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    for name in "abc":
        scheduler.add(make_request(name))
    step = scheduler.schedule()
    events = scheduler.fail_step(step, "out of memory")
    assert [(event.key.request_id, event.finish_reason, event.error) for event in events] == [
        ("a", "error", "out of memory"),
        ("b", "error", "out of memory"),
    ]
    assert turn(scheduler) == [TokenEvent(RequestKey("c", 0), 0, (1,))]


def test_the_runner_is_told_again_what_a_failed_step_should_have_dropped() -> None:
    scheduler = scheduler_with(make_request("a", max_tokens=1))
    turn(scheduler)
    scheduler.add(make_request("b"))
    failed = scheduler.schedule()
    assert failed.dropped == (A,)
    scheduler.fail_step(failed, "broken")
    scheduler.add(make_request("a"))
    assert set(scheduler.schedule().dropped) == {A, RequestKey("b", 0)}


def test_but_not_what_has_come_back_since() -> None:
    scheduler = scheduler_with(make_request("a", max_tokens=1), make_request("b"))
    turn(scheduler)
    failed = scheduler.schedule()
    assert failed.dropped == (A,)
    scheduler.add(make_request("a"))
    assert [new.key for new in scheduler.schedule().new] == [A]
    scheduler.fail_step(failed, "broken")
    assert scheduler.schedule().dropped == (RequestKey("b", 0),)


def test_a_step_is_not_failed_twice() -> None:
    scheduler = scheduler_with(make_request("a"))
    step = scheduler.schedule()
    scheduler.fail_step(step, "broken")
    with pytest.raises(InvariantError, match="step 0 failed, but it is not in flight"):
        scheduler.fail_step(step, "broken")


def test_abort_ends_all_choices_and_frees_their_blocks_at_once() -> None:
    scheduler = scheduler_with(make_request("a"), make_request("a", choice=1), make_request("b"))
    turn(scheduler)
    events = scheduler.abort("a")
    assert events == [TokenEvent(RequestKey("a", choice), 1, finish_reason="abort") for choice in (0, 1)]
    assert set(scheduler.kv.tables) == {RequestKey("b", 0)}
    assert scheduler.abort("a") == []


def test_one_choice_can_be_aborted() -> None:
    scheduler = scheduler_with(make_request("a"), make_request("a", choice=1))
    assert scheduler.abort("a", 1) == [TokenEvent(RequestKey("a", 1), 0, finish_reason="abort")]
    assert scheduler.num_waiting == 1


def test_abort_ends_what_runs_and_what_waits() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    for name in "abc":
        scheduler.add(make_request(name))
    turn(scheduler)
    assert sorted(event.key.request_id for name in "abc" for event in scheduler.abort(name)) == ["a", "b", "c"]
    assert not scheduler.has_unfinished
    assert scheduler.schedule().rows == ()


def test_results_for_a_request_that_has_ended_meanwhile_are_dropped() -> None:
    scheduler = scheduler_with(make_request("a"))
    step = scheduler.schedule()
    scheduler.abort("a")
    scheduler.add(make_request("a"))
    assert scheduler.update(results(step)) == []
    assert turn(scheduler) == [TokenEvent(A, 0, (1,))]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (RunnerOutput(1, (RowResult(A, 1),)), "results of step 1 came, but 0 was next"),
        (RunnerOutput(0, ()), "are not those of its rows"),
        (RunnerOutput(0, (RowResult(RequestKey("b", 0), 1),)), "are not those of its rows"),
        (RunnerOutput(0, (RowResult(A),)), "has neither a token nor an error"),
    ],
)
def test_results_that_are_not_the_steps_change_nothing(output: RunnerOutput, message: str) -> None:
    scheduler = scheduler_with(make_request("a"))
    step = scheduler.schedule()
    with pytest.raises(InvariantError, match=message):
        scheduler.update(output)
    assert scheduler.update(results(step)) == [TokenEvent(A, 0, (1,))]
