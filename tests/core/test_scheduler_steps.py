"""What goes into a step: budget, chunks, admission."""

from __future__ import annotations

import pytest

from pagoda.config import EngineConfig
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import RequestKey, SchedulerOutput
from pagoda.errors import DoesNotFitError, InvalidValueError
from tests.core.driver import make_request, make_scheduler, results


def step_of(scheduler: Scheduler) -> SchedulerOutput:
    step = scheduler.schedule()
    if step.rows:
        scheduler.update(results(step))
    return step


def shares(step: SchedulerOutput) -> dict[str, int]:
    return {row.key.request_id: row.num_tokens for row in step.rows}


def test_the_configuration_carries_over() -> None:
    config = EngineConfig(max_num_seqs=3, max_batched_tokens=100, max_prefill_chunk=7)
    assert SchedulerConfig.of(config) == SchedulerConfig(3, 100, 7)


def test_nothing_to_do_is_a_step_without_rows() -> None:
    scheduler = make_scheduler()
    assert scheduler.schedule().rows == ()
    assert not scheduler.has_unfinished
    assert not scheduler.in_flight


def test_a_prompt_then_its_tokens_one_by_one() -> None:
    scheduler = make_scheduler(block_size=4)
    scheduler.add(make_request("a", 7, max_tokens=3))
    steps = [step_of(scheduler) for _ in range(4)]
    assert [(row.start, row.num_tokens, row.samples) for step in steps for row in step.rows] == [
        (0, 7, True),
        (7, 1, True),
        (8, 1, True),
    ]
    assert [len(row.new_block_ids) for step in steps for row in step.rows] == [2, 0, 1]
    assert [len(step.new) for step in steps] == [1, 0, 0, 0]
    assert steps[0].new[0].token_ids == make_request("a", 7).prompt_token_ids
    assert not scheduler.has_unfinished


def test_a_finished_request_is_dropped_with_the_next_step() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", max_tokens=1))
    step_of(scheduler)
    assert scheduler.schedule().rows == ()
    scheduler.add(make_request("b", max_tokens=2))
    assert step_of(scheduler).dropped == (RequestKey("a", 0),)
    assert step_of(scheduler).dropped == ()


def test_a_prompt_alone_takes_the_whole_budget() -> None:
    scheduler = make_scheduler(max_batched_tokens=32, prefill_chunk=8)
    scheduler.add(make_request("a", 70))
    assert [shares(step_of(scheduler)) for _ in range(4)] == [{"a": 32}, {"a": 32}, {"a": 6}, {"a": 1}]


def test_a_prompt_takes_at_most_the_chunk_while_others_wait_or_run_with_theirs() -> None:
    scheduler = make_scheduler(max_batched_tokens=32, prefill_chunk=8, max_num_seqs=2)
    for name in "abc":
        scheduler.add(make_request(name, 24))
    assert [shares(step_of(scheduler)) for _ in range(3)] == [{"a": 8, "b": 8}] * 3
    assert shares(step_of(scheduler)) == {"a": 1, "b": 1}


def test_two_prompts_take_a_chunk_each() -> None:
    scheduler = make_scheduler(max_batched_tokens=32, prefill_chunk=8)
    for name in "ab":
        scheduler.add(make_request(name, 24))
    assert [shares(step_of(scheduler)) for _ in range(3)] == [{"a": 8, "b": 8}] * 3


def test_a_prompt_takes_at_most_the_chunk_while_others_wait_for_a_slot() -> None:
    scheduler = make_scheduler(max_batched_tokens=32, prefill_chunk=8, max_num_seqs=1)
    for name in "ab":
        scheduler.add(make_request(name, 24))
    assert [shares(step_of(scheduler)) for _ in range(3)] == [{"a": 8}] * 3


def test_a_chunk_as_large_as_the_budget_still_leaves_half_for_the_prompt_behind() -> None:
    scheduler = make_scheduler(max_batched_tokens=32, prefill_chunk=32)
    for name in "ab":
        scheduler.add(make_request(name, 64))
    assert [shares(step_of(scheduler)) for _ in range(2)] == [{"a": 16, "b": 16}, {"a": 15, "b": 17}]


def test_a_prompt_leaves_a_token_for_each_that_runs_behind_it() -> None:
    scheduler = make_scheduler(policy="priority", max_batched_tokens=10, prefill_chunk=10)
    for name in "abc":
        scheduler.add(make_request(name, 2, max_tokens=9))
    step_of(scheduler)
    scheduler.add(make_request("urgent", 30, priority=-1))
    assert [shares(step_of(scheduler)) for _ in range(2)] == [
        {"a": 1, "b": 1, "c": 1, "urgent": 7},
        {"urgent": 7, "a": 1, "b": 1, "c": 1},
    ]


def test_no_more_run_than_the_budget_has_tokens() -> None:
    scheduler = make_scheduler(max_batched_tokens=3, prefill_chunk=3, max_num_seqs=8)
    for name in "abcde":
        scheduler.add(make_request(name, 1, max_tokens=3))
    assert [shares(step_of(scheduler)) for _ in range(2)] == [{"a": 1, "b": 1, "c": 1}] * 2
    assert scheduler.max_running == 3


def test_where_the_first_does_not_fit_nobody_overtakes_it() -> None:
    scheduler = make_scheduler(num_blocks=8, block_size=4, watermark=0.0)
    scheduler.add(make_request("a", 16, max_tokens=3))
    step_of(scheduler)
    scheduler.add(make_request("large", 16, max_tokens=8))
    scheduler.add(make_request("small", 1, max_tokens=1))
    assert shares(step_of(scheduler)) == {"a": 1}
    assert scheduler.num_waiting == 2
    assert shares(step_of(scheduler)) == {"a": 1}
    assert shares(step_of(scheduler)) == {"large": 16, "small": 1}


@pytest.mark.parametrize(("max_tokens", "blocks"), [(1, 1), (2, 2)])
def test_admission_makes_room_for_the_first_new_token_if_it_will_be_computed(max_tokens: int, blocks: int) -> None:
    scheduler = make_scheduler(block_size=4)
    scheduler.add(make_request("a", 4, max_tokens=max_tokens))
    assert len(step_of(scheduler).rows[0].new_block_ids) == blocks


def test_admission_leaves_blocks_for_those_that_run() -> None:
    scheduler = make_scheduler(num_blocks=6, block_size=4)
    for name in "abc":
        scheduler.add(make_request(name, 5, max_tokens=8))
    # a takes 2 blocks; b would leave 2, one being needed for a; c would leave 0, two being needed for a and b.
    assert shares(step_of(scheduler)) == {"a": 5, "b": 5}


def test_the_watermark_is_a_share_of_all_blocks() -> None:
    scheduler = make_scheduler(num_blocks=100, block_size=4, watermark=0.5)
    for name in "abc":
        scheduler.add(make_request(name, 80, max_tokens=100))
    step_of(scheduler)
    assert scheduler.num_running == 2


def test_the_watermark_never_keeps_out_the_only_one() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4, watermark=1.0)
    scheduler.add(make_request("a", 13, max_tokens=4))
    assert shares(step_of(scheduler)) == {"a": 13}


def test_equal_arrivals_keep_the_order_in_which_they_were_added() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    for name in "cab":
        scheduler.add(make_request(name, max_tokens=1))
    assert [list(shares(step_of(scheduler))) for _ in range(3)] == [["c"], ["a"], ["b"]]


def test_what_can_never_fit_is_refused_with_figures() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4)
    scheduler.add(make_request("fits", 9, max_tokens=8))
    with pytest.raises(
        DoesNotFitError,
        match="'too long': 9 prompt tokens and max_tokens 9 need 5 KV blocks of 4 tokens, but there are 4",
    ):
        scheduler.add(make_request("too long", 9, max_tokens=9))
    assert scheduler.num_waiting == 1


def test_bad_requests_are_refused() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a"))
    with pytest.raises(InvalidValueError, match="request_id: got 'a', must be one that is not under way already"):
        scheduler.add(make_request("a"))
    with pytest.raises(InvalidValueError, match="prompt"):
        scheduler.add(make_request("b", ()))
    with pytest.raises(InvalidValueError, match="max_tokens"):
        scheduler.add(make_request("b", max_tokens=None))  # type: ignore[arg-type]
    scheduler.add(make_request("a", choice=1))
    assert scheduler.num_waiting == 2
