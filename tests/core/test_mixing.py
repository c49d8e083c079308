"""Mixing: which rows a step holds, told by their numbers of tokens."""

from __future__ import annotations

import pytest

from pagoda.core.mixing import DecodeFirst, Mixed, Mixing, OneBatchAtATime, PrefillFirst
from tests.core.driver import Driver, make_request, make_scheduler


def steps(driver: Driver, count: int) -> list[dict[str, int]]:
    """The next steps: request → tokens it computes."""
    return [{row.key.request_id: row.num_tokens for row in driver.turn().rows} for _ in range(count)]


def started(mixing: Mixing) -> Driver:
    """One request has its first token, and three more to come."""
    driver = Driver(make_scheduler(mixing=mixing, max_batched_tokens=8, prefill_chunk=8))
    driver.add(make_request("old", 4, 4))
    assert steps(driver, 1) == [{"old": 4}]
    return driver


def test_mixed_steps_hold_decodes_and_prompts() -> None:
    driver = started(Mixed())
    driver.add(make_request("new", 12, 2))
    assert steps(driver, 4) == [{"old": 1, "new": 7}, {"old": 1, "new": 5}, {"old": 1, "new": 1}, {}]


def test_prefill_first_holds_back_those_that_decode() -> None:
    driver = started(PrefillFirst())
    driver.add(make_request("new", 12, 2))
    assert steps(driver, 5) == [{"new": 8}, {"new": 4}, {"old": 1, "new": 1}, {"old": 1}, {"old": 1}]


def test_prefill_first_goes_on_with_decodes_when_the_next_prompt_finds_no_room() -> None:
    driver = Driver(make_scheduler(mixing=PrefillFirst(), max_num_seqs=1))
    driver.add(make_request("old", 4, 3), make_request("new", 4, 1))
    assert steps(driver, 4) == [{"old": 4}, {"old": 1}, {"old": 1}, {"new": 4}]


def test_decode_first_holds_back_prompts() -> None:
    driver = started(DecodeFirst())
    driver.add(make_request("new", 12, 2))
    assert steps(driver, 6) == [{"old": 1}, {"old": 1}, {"old": 1}, {"new": 8}, {"new": 4}, {"new": 1}]


def test_a_static_batch_is_those_that_wait_when_nobody_runs() -> None:
    driver = Driver(make_scheduler(mixing=OneBatchAtATime(Mixed()), max_batched_tokens=8, prefill_chunk=8))
    driver.add(make_request("a", 8, 3), make_request("b", 4, 1))
    assert steps(driver, 1) == [{"a": 4, "b": 4}]
    driver.add(make_request("late", 4, 1))
    # b has ended, and there is room, but a goes on.
    assert steps(driver, 4) == [{"a": 4}, {"a": 1}, {"a": 1}, {"late": 4}]


def test_a_static_batch_fills_over_as_many_steps_as_its_prompts_need() -> None:
    driver = Driver(make_scheduler(mixing=OneBatchAtATime(PrefillFirst()), max_batched_tokens=8, prefill_chunk=8))
    driver.add(make_request("a", 8, 2), make_request("b", 8, 2))
    # A prompt with another behind it takes at most half of what is left beside that one's first token.
    assert steps(driver, 4) == [{"a": 4, "b": 4}, {"a": 3, "b": 4}, {"a": 1, "b": 1}, {"a": 1}]


def test_a_static_batch_is_full_when_the_next_finds_no_room() -> None:
    driver = Driver(make_scheduler(mixing=OneBatchAtATime(Mixed()), max_num_seqs=2))
    driver.add(make_request("a", 4, 1), make_request("b", 4, 3), make_request("c", 4, 1))
    assert steps(driver, 5) == [{"a": 4, "b": 4}, {"b": 1}, {"b": 1}, {"c": 4}, {}]


@pytest.mark.parametrize("mixing", [Mixed, PrefillFirst, DecodeFirst])
def test_a_static_batch_of_any_mixing_ends(mixing: type[Mixed | PrefillFirst | DecodeFirst]) -> None:
    driver = Driver(make_scheduler(mixing=OneBatchAtATime(mixing()), num_blocks=8))
    for number in range(12):
        driver.add(make_request(str(number), 1 + number, 1 + number % 5))
        driver.turn()
    driver.finish()
