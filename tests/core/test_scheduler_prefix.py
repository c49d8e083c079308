"""Requests that begin with the same text: what they share, when, and what becomes of it."""

from __future__ import annotations

from pagoda.core import invariants
from pagoda.core.prefix_cache import Miss, Namespace, PrefixCache
from pagoda.core.scheduler import Scheduler
from pagoda.core.step import RequestKey, RowResult, RunnerOutput, SchedulerOutput
from tests.core.driver import Driver, alone, make_request, make_scheduler

TEXT = tuple(range(20, 40))  # five blocks


def cached_scheduler(num_blocks: int = 64, **settings: int) -> Scheduler:
    return make_scheduler(num_blocks=num_blocks, cache=PrefixCache(4), **settings)


def row_of(step: SchedulerOutput, name: str, choice: int = 0) -> tuple[int, int, int]:
    """(start, num_tokens, num_shared_blocks)."""
    (row,) = [row for row in step.rows if row.key == RequestKey(name, choice)]
    return row.start, row.num_tokens, row.num_shared_blocks


def run(driver: Driver, name: str, prompt: tuple[int, ...], max_tokens: int = 1, **fields: object) -> SchedulerOutput:
    """Runs one request to its end; the step it entered in."""
    request = make_request(name, prompt, max_tokens, **fields)
    driver.add(request)
    step = driver.turn()
    driver.finish()
    assert driver.received[request.key] == alone(request)
    return step


def test_a_text_that_was_computed_before_is_not_computed_again() -> None:
    driver = Driver(cached_scheduler())
    assert row_of(run(driver, "first", TEXT), "first") == (0, 20, 0)
    # Its last token is computed anew, to sample from; with it the rest of its block.
    assert row_of(run(driver, "again", TEXT), "again") == (16, 4, 4)
    assert row_of(run(driver, "longer", (*TEXT, 1, 2)), "longer") == (20, 2, 5)
    assert row_of(run(driver, "other end", (*TEXT[:9], 1, 2, 3, 4)), "other end") == (8, 5, 2)
    stats = driver.scheduler.kv.prefix_stats
    assert (stats.queried_tokens, stats.hit_tokens) == (20 + 20 + 22 + 13, 16 + 20 + 8)
    assert stats.misses == {Miss.NEW_TEXT: 2}


def test_the_next_turn_of_a_conversation_computes_only_what_is_new() -> None:
    driver = Driver(cached_scheduler())
    run(driver, "one", TEXT, max_tokens=8)
    answer = driver.received[RequestKey("one", 0)].token_ids
    # 20 tokens and 7 of the 8 generated ones are in the cache (the last was never computed): six full blocks.
    assert row_of(run(driver, "two", (*TEXT, *answer, 3, 4, 5)), "two") == (24, 7, 6)


def test_choices_of_one_prompt_compute_it_once() -> None:
    driver = Driver(cached_scheduler())
    requests = [make_request("n", TEXT, 3, choice=choice, temperature=1.0) for choice in range(4)]
    driver.add(*requests)
    step = driver.turn()
    assert [row_of(step, "n", choice) for choice in range(4)] == [(0, 16, 0), (16, 4, 4), (16, 4, 4), (16, 4, 4)]
    driver.finish()
    assert all(driver.received[request.key] == alone(request) for request in requests)


def test_those_who_begin_alike_wait_for_the_one_who_computes_it() -> None:
    driver = Driver(cached_scheduler(max_batched_tokens=8, prefill_chunk=8))
    driver.add(make_request("a", TEXT, 3), make_request("b", (*TEXT, 1), 3), make_request("c", (*TEXT, 2), 3))
    steps = []
    while driver.scheduler.waiting:
        steps.append(driver.turn())
    assert [[row.key.request_id for row in step.rows] for step in steps[:2]] == [["a"], ["a"]]
    assert sum(step.num_tokens for step in steps if step.rows) <= 20 + 1 + 1 + 2
    driver.finish()


def test_tenants_salts_and_adapters_do_not_share() -> None:
    driver = Driver(cached_scheduler())
    run(driver, "mine", TEXT)
    others = [Namespace("other"), Namespace(salt="s"), Namespace(adapter="x")]
    for number, namespace in enumerate(others):
        assert row_of(run(driver, f"{number}", TEXT, namespace=namespace), f"{number}") == (0, 20, 0)
    assert driver.scheduler.kv.prefix_stats.misses[Miss.OTHER_TENANT] == 3


def test_log_probabilities_of_a_prompt_need_all_of_it() -> None:
    driver = Driver(cached_scheduler())
    run(driver, "first", TEXT)
    assert row_of(run(driver, "scored", TEXT, prompt_logprobs=2), "scored") == (0, 20, 0)


def test_the_longest_unused_text_goes_first_and_its_end_before_its_beginning() -> None:
    driver = Driver(cached_scheduler(num_blocks=12))
    run(driver, "old", TEXT)
    run(driver, "new", tuple(reversed(TEXT)))
    # Twelve blocks: ten hold text. Four more take the two empty ones and the end of the old text.
    run(driver, "big", tuple(range(1, 16)))
    assert row_of(run(driver, "new again", tuple(reversed(TEXT))), "new again") == (16, 4, 4)
    start, _, shared = row_of(run(driver, "old again", TEXT), "old again")
    assert 0 < shared < 4
    assert start == 4 * shared
    assert driver.scheduler.kv.prefix_stats.misses[Miss.EVICTED] == 1


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    driver = Driver(cached_scheduler(num_blocks=14, max_num_seqs=2))
    first, second = make_request("a", TEXT, 12, arrival_time=0.0), make_request("b", TEXT[::-1], 12, arrival_time=1.0)
    driver.add(first, second)
    driver.finish()
    assert driver.scheduler.num_preemptions > 0
    back = [row for step in driver.steps for row in step.rows if row.key == second.key and row.num_shared_blocks]
    assert back
    assert all(driver.received[request.key] == alone(request) for request in (first, second))
    assert driver.scheduler.kv.prefix_stats.hit_tokens == 4 * sum(row.num_shared_blocks for row in back)


def test_what_a_failed_step_was_to_compute_is_not_found() -> None:
    driver = Driver(cached_scheduler())
    driver.add(make_request("a", TEXT, 2))
    driver.turn(fail="collect")
    assert driver.scheduler.kv.num_cached_blocks == 0
    assert row_of(run(driver, "b", TEXT), "b") == (0, 20, 0)


def test_who_shares_blocks_of_a_failed_step_fails_with_it() -> None:
    driver = Driver(cached_scheduler(), depth=1)
    driver.add(make_request("a", TEXT, 9))
    driver.turn()
    driver.add(make_request("b", (*TEXT, 1), 9), make_request("c", TEXT[::-1], 9))
    # The step that computes a's blocks is collected, and fails, after the one in which b shares them was scheduled.
    assert row_of(driver.turn(fail="collect"), "b")[2] == 5
    reasons = {key.request_id: received.finish_reason for key, received in driver.received.items()}
    assert reasons == {"a": "error", "b": "error", "c": None}
    driver.finish()


def test_without_a_cache_nothing_is_shared() -> None:
    driver = Driver(make_scheduler())
    run(driver, "first", TEXT)
    assert row_of(run(driver, "again", TEXT), "again") == (0, 20, 0)
    assert driver.scheduler.kv.num_cached_blocks == 0


def test_who_leaves_while_a_step_is_in_flight_leaves_nothing_that_is_not_sure() -> None:
    driver = Driver(cached_scheduler(max_batched_tokens=64, prefill_chunk=64), depth=1)
    driver.add(make_request("a", TEXT[:19], 9), make_request("b", TEXT[::-1], 9))
    driver.turn()
    driver.turn()  # its second step, in flight now, fills the fifth block
    driver.abort("a")
    driver.turn(fail="collect")
    driver.finish()
    step = run(driver, "again", (*TEXT[:19], *driver.received[RequestKey("a", 0)].token_ids, 1))
    assert row_of(step, "again")[2] == 4


def test_a_block_that_decoding_filled_in_a_failed_step_is_not_found() -> None:
    driver = Driver(cached_scheduler())
    driver.add(make_request("a", TEXT[:6], 8))
    driver.turn()
    driver.turn()
    driver.turn(fail="collect")  # position 7, the last of its block
    answer = driver.received[RequestKey("a", 0)].token_ids
    assert row_of(run(driver, "b", (*TEXT[:6], *answer, 1)), "b")[2] == 1


def test_what_a_request_had_whose_numbers_were_none_is_not_found() -> None:
    driver = Driver(cached_scheduler())
    scheduler, request = driver.scheduler, make_request("a", TEXT[:6], 8)
    run(driver, "same", TEXT[:6])
    driver.add(request)
    driver.turn()
    assert row_of(driver.turn(), "a") == (6, 1, 0)
    assert scheduler.kv.num_cached_blocks == 1
    step = scheduler.schedule()  # position 7, the last of its block
    scheduler.update(RunnerOutput(step.step, (RowResult(request.key, error="no number"),)))
    assert scheduler.kv.num_cached_blocks == 0
    invariants.check(scheduler)


def test_who_waits_for_a_prompt_enters_when_its_last_token_is_computed_alone() -> None:
    driver = Driver(cached_scheduler(max_batched_tokens=8, prefill_chunk=8))
    driver.add(make_request("decodes", (1, 2), 30))
    driver.turn()
    driver.add(make_request("a", TEXT[:8], 20))
    assert row_of(driver.turn(), "a") == (0, 7, 0)
    driver.add(make_request("b", (*TEXT[:8], 1), 20))
    assert row_of(driver.turn(), "a") == (7, 1, 0)
    assert row_of(driver.steps[-1], "b") == (8, 1, 2)


def test_who_waits_for_another_prompt_does_not_hold_up_those_behind() -> None:
    driver = Driver(cached_scheduler(max_batched_tokens=8, prefill_chunk=4))
    long = tuple(range(48))
    driver.add(make_request("a", long, 3), make_request("b", long, 3), make_request("short", (50, 51, 52), 3))
    entered = [{request.key.request_id for request in driver.turn().new} for _ in range(3)]
    assert any("short" in names for names in entered)
    assert not any("b" in names for names in entered)
    driver.finish()
    assert driver.received[RequestKey("b", 0)].token_ids == driver.received[RequestKey("a", 0)].token_ids
