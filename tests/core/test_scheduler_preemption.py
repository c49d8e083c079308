"""Running out of blocks: who gives way, and that nothing is lost by it but time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pagoda.core.policies import FirstComeFirstServed
from pagoda.core.request import Request
from pagoda.core.scheduler import Preemption, Scheduler
from pagoda.core.step import RequestKey, SchedulerOutput
from tests.core.driver import Driver, alone, make_request, make_scheduler, results

A, B = RequestKey("a", 0), RequestKey("b", 0)


class FirstGivesWay(FirstComeFirstServed):
    def pick_victim(self, running: Sequence[Request]) -> Request:
        return running[0]


def crowded(depth: int = 0, policy: str = "fcfs", **fields: object) -> Driver:
    """Two requests that fit one at a time only, once they have grown."""
    driver = Driver(make_scheduler(num_blocks=6, block_size=2, watermark=0.0, policy=policy), depth)
    driver.add(make_request("a", 3, max_tokens=8, **fields), make_request("b", 3, max_tokens=8, **fields))
    return driver


def turn_until_preemption(driver: Driver) -> None:
    while not driver.scheduler.num_preemptions:
        driver.turn()


def test_the_last_to_arrive_gives_way_and_comes_back_with_all_its_tokens() -> None:
    driver = crowded()
    turn_until_preemption(driver)
    step = driver.steps[-1]
    assert step.dropped == (B,)
    assert driver.scheduler.preemptions == (Preemption(B, 6, on_behalf_of=A),)
    assert [request.key for request in driver.scheduler.running] == [A]
    driver.finish()
    (back,) = [new for step in driver.steps[4:] for new in step.new]
    assert back.key == B
    assert back.num_prompt_tokens == 3
    assert back.token_ids == (*make_request("b", 3).prompt_token_ids, *driver.received[B].token_ids[:4])


def test_the_less_urgent_gives_way() -> None:
    driver = Driver(make_scheduler(num_blocks=6, block_size=2, watermark=0.0, policy="priority"))
    driver.add(make_request("a", 3, max_tokens=8), make_request("b", 3, max_tokens=8, priority=-1))
    turn_until_preemption(driver)
    assert driver.scheduler.preemptions[0].victim == A


def test_preemptions_are_reported_with_the_step_they_led_to() -> None:
    driver = crowded()
    turn_until_preemption(driver)
    assert len(driver.scheduler.preemptions) == 1
    driver.turn()
    assert driver.scheduler.preemptions == ()
    assert driver.scheduler.num_preemptions == 1


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_the_text_is_that_of_a_request_alone(depth: int, policy: str) -> None:
    driver = crowded(depth, policy, prompt_logprobs=1, logprobs=1)
    driver.finish()
    assert driver.scheduler.num_preemptions > 0
    for name in "ab":
        expected = alone(make_request(name, 3, max_tokens=8, prompt_logprobs=1, logprobs=1))
        assert driver.received[RequestKey(name, 0)] == expected


def test_prompt_log_probabilities_are_sent_once_though_computed_twice() -> None:
    driver = crowded(prompt_logprobs=0)
    driver.finish()
    assert [len(driver.received[key].prompt_logprobs) for key in (A, B)] == [2, 2]


def test_with_a_token_in_flight_it_comes_back_only_when_the_token_is_known() -> None:
    scheduler = crowded().scheduler
    while not scheduler.num_preemptions:
        step, preempting = preempting_step(scheduler)
    scheduler.abort("a")
    assert scheduler.schedule().rows == ()
    (event,) = scheduler.update(results(step))
    assert event.key == B
    (back,) = scheduler.schedule().new
    assert back.token_ids[-1:] == event.token_ids
    assert scheduler.update(results(preempting)) == []


def preempting_step(scheduler: Scheduler) -> tuple[SchedulerOutput, SchedulerOutput]:
    """Two steps in flight; the first is taken in unless the second had to preempt."""
    first = scheduler.in_flight[0].step if scheduler.in_flight else scheduler.schedule()
    second = scheduler.schedule()
    if not scheduler.num_preemptions:
        scheduler.update(results(first))
    return first, second


def test_one_that_was_preempted_may_end_by_the_token_in_flight() -> None:
    driver = crowded(depth=1)
    while len(driver.received[B].token_ids) < 3:
        driver.turn()
    fifth = alone(make_request("b", 3, max_tokens=8)).token_ids[4]
    victim = next(request for request in driver.scheduler.running if request.key == B)
    victim.end_token_ids = frozenset({fifth})
    turn_until_preemption(driver)
    driver.finish()
    assert driver.received[B].finish_reason == "stop"
    assert driver.received[B].stop_token_id == fifth


def test_a_step_that_had_to_preempt_admits_nobody() -> None:
    driver = Driver(make_scheduler(num_blocks=8, block_size=1, watermark=0.0, policy="priority"))
    driver.add(make_request("a", 1, max_tokens=8, priority=-1), make_request("b", 4, max_tokens=4, priority=1))
    driver.turn()
    driver.turn()
    driver.add(make_request("c", 1, max_tokens=1))
    assert [row.key.request_id for row in driver.turn().rows] == ["a"]
    assert driver.scheduler.preemptions[0].victim == B
    assert [row.key.request_id for row in driver.turn().rows] == ["a", "c"]


def test_what_has_its_row_already_is_no_candidate_whatever_the_policy() -> None:
    driver = Driver(make_scheduler(num_blocks=6, block_size=2, watermark=0.0))
    driver.scheduler.policy = FirstGivesWay()
    driver.add(make_request("a", 3, max_tokens=8), make_request("b", 4, max_tokens=7))
    turn_until_preemption(driver)
    # b wants a block when a has its row: a is out of reach, so b gives way itself.
    assert driver.scheduler.preemptions == (Preemption(B, 6, on_behalf_of=B),)
    driver.finish()
    assert driver.received[A] == alone(make_request("a", 3, max_tokens=8))


def test_the_first_never_gives_way_whatever_the_policy() -> None:
    driver = Driver(make_scheduler(num_blocks=6, block_size=2, watermark=0.0))
    driver.scheduler.policy = FirstGivesWay()
    driver.add(make_request("a", 4, max_tokens=7), make_request("b", 3, max_tokens=8))
    victims = []
    while driver.scheduler.has_unfinished:
        driver.turn()
        victims += [(preemption.victim, preemption.on_behalf_of) for preemption in driver.scheduler.preemptions]
    assert (B, A) in victims
    assert all(victim == B for victim, _ in victims)
    assert driver.received[A] == alone(make_request("a", 4, max_tokens=7))


def test_the_first_always_advances_though_all_others_thrash() -> None:
    driver = Driver(make_scheduler(num_blocks=8, block_size=1, watermark=0.0))
    for name in "abcdefgh":
        driver.add(make_request(name, 1, max_tokens=8))
    for expected in range(1, 9):
        driver.turn()
        assert len(driver.received[A].token_ids) == expected
    driver.finish()


def test_one_that_just_fits_alone_is_never_preempted() -> None:
    driver = Driver(make_scheduler(num_blocks=4, block_size=2), depth=1)
    driver.add(make_request("a", 3, max_tokens=6))
    driver.finish()
    assert driver.scheduler.num_preemptions == 0
    assert len(driver.received[A].token_ids) == 6
