"""One step in flight beyond the one collected: the same code, the same text, nothing scheduled too far."""

from __future__ import annotations

from pagoda.core.step import RequestKey
from tests.core.driver import Driver, alone, make_request, make_scheduler, results

A = RequestKey("a", 0)


def test_the_next_step_is_scheduled_before_the_token_is_known() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 4, max_tokens=3))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert [(row.start, row.samples) for row in (*first.rows, *second.rows)] == [(0, True), (4, True)]
    assert [event.index for step in (first, second) for event in scheduler.update(results(step))] == [0, 1]


def test_nothing_is_scheduled_beyond_max_tokens() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 4, max_tokens=2))
    scheduler.schedule()
    scheduler.schedule()
    assert scheduler.schedule().rows == ()


def test_a_scored_prompt_is_computed_once() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 4, max_tokens=0, prompt_logprobs=0))
    step = scheduler.schedule()
    assert scheduler.schedule().rows == ()
    assert [event.finish_reason for event in scheduler.update(results(step))] == ["length"]


def test_blocks_of_a_finished_request_are_free_though_it_has_a_row_in_flight() -> None:
    driver = Driver(make_scheduler(num_blocks=4, block_size=4), depth=1)
    third = alone(make_request("a", 4, max_tokens=9)).token_ids[2]
    driver.add(make_request("a", 4, max_tokens=9, end_token_ids=frozenset({third})))
    other = make_request("other", 13, max_tokens=4)
    driver.add(other)
    while driver.received[A].finish_reason is None:
        driver.turn()
    assert driver.in_flight[0].rows[0].key == A
    assert driver.scheduler.kv.num_free_blocks == 4
    driver.finish()
    assert driver.received[other.key] == alone(other)


def test_both_depths_give_the_same_text() -> None:
    received = []
    for depth in (0, 1):
        driver = Driver(make_scheduler(num_blocks=20, max_batched_tokens=8, prefill_chunk=4), depth)
        driver.add(*[make_request(f"r{number}", 3 + number, max_tokens=9, temperature=1.0) for number in range(9)])
        driver.finish()
        received.append(driver.received)
    assert received[0] == received[1]
