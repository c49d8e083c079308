"""Trouble 38: long prompts starve short ones, or short ones starve the long one.

Right is a bounded wait, in steps, both ways. With a budget of B tokens a step, D requests in decode, chunk C:

- a short prompt that finds a slot, blocks, and K long prompts under way is computed in the very next step, if it is no
  longer than (B - D) / 2^K tokens, rounded down at each halving;
- the long prompt computes at least min(C, (B - D) // 2) tokens in each step, however many short ones come, so one of N
  tokens is done after at most N / min(C, (B - D) // 2) steps, rounded up;
- under `priority` nobody waits for more than what arrives within (difference of priorities) × ageing seconds.
"""

from __future__ import annotations

import math

import pytest

from pagoda.core.scheduler import Scheduler
from pagoda.core.step import RequestKey, SchedulerOutput
from tests.core.driver import make_request, make_scheduler, results

BUDGET, CHUNK, LONG, SHORT = 64, 32, 2_000, 6


def roomy(policy: str = "fcfs", max_num_seqs: int = 40, prefill_chunk: int = CHUNK) -> Scheduler:
    return make_scheduler(
        num_blocks=4_000,
        block_size=4,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=BUDGET,
        prefill_chunk=prefill_chunk,
        policy=policy,
    )


def turn(scheduler: Scheduler) -> dict[str, int]:
    """One step; returns how many tokens it computed of whom."""
    step: SchedulerOutput = scheduler.schedule()
    scheduler.update(results(step))
    return {row.key.request_id: row.num_tokens for row in step.rows}


def decoding(scheduler: Scheduler, count: int) -> None:
    for number in range(count):
        scheduler.add(make_request(f"decode {number}", 1, max_tokens=5_000 // count))
    if count:
        turn(scheduler)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("num_decoding", [0, 1, 20])
@pytest.mark.parametrize("num_long", [1, 2])
def test_a_short_prompt_behind_long_ones_is_computed_in_the_next_step(
    policy: str, num_decoding: int, num_long: int
) -> None:
    scheduler = roomy(policy)
    decoding(scheduler, num_decoding)
    for number in range(num_long):
        scheduler.add(make_request(f"long {number}", LONG, arrival_time=1.0))
    for _ in range(3):
        turn(scheduler)
    scheduler.add(make_request("short", SHORT, arrival_time=2.0))
    assert turn(scheduler)["short"] == SHORT
    assert scheduler.running[-1].output_token_ids == [1]


def test_even_when_the_chunk_is_the_whole_budget() -> None:
    scheduler = roomy(prefill_chunk=BUDGET)
    scheduler.add(make_request("long", LONG))
    turn(scheduler)
    scheduler.add(make_request("short", SHORT))
    assert turn(scheduler) == {"long": BUDGET // 2, "short": SHORT}


@pytest.mark.parametrize("num_decoding", [0, 20])
@pytest.mark.parametrize("arrivals", [1, 5, 30])
def test_a_long_prompt_is_not_starved_by_short_ones(num_decoding: int, arrivals: int) -> None:
    """However many short ones arrive in every step. Those that decode by then count among the D."""
    scheduler = roomy()
    decoding(scheduler, num_decoding)
    scheduler.add(make_request("long", LONG, arrival_time=1.0))
    steps = 0
    at_least = LONG
    while "long" not in {request.key.request_id for request in scheduler.running if request.output_token_ids}:
        for number in range(arrivals):
            scheduler.add(make_request(f"short {steps} {number}", SHORT, max_tokens=3, arrival_time=2.0 + steps))
        others = sum(request.key.request_id != "long" for request in scheduler.running)
        share = turn(scheduler)["long"]
        promised = min(CHUNK, (BUDGET - others) // 2)
        remaining = LONG - next(r for r in scheduler.running if r.key.request_id == "long").num_computed_tokens
        assert share >= promised or remaining <= 0
        at_least = min(at_least, promised)
        steps += 1
    assert steps <= math.ceil(LONG / at_least)


def test_a_long_prompt_that_waits_is_not_overtaken_for_ever() -> None:
    """One slot, a queue that never gets empty: it is served when its turn comes."""
    scheduler = roomy(max_num_seqs=1)
    scheduler.add(make_request("first", SHORT, max_tokens=1))
    scheduler.add(make_request("long", LONG, arrival_time=1.0))
    for number in range(10):
        scheduler.add(make_request(f"short {number}", SHORT, max_tokens=1, arrival_time=2.0))
    assert [list(turn(scheduler)) for _ in range(2)] == [["first"], ["long"]]


def test_priority_bounds_the_wait_by_its_ageing_time() -> None:
    """Urgent ones arrive once a second for ever, just as fast as they are served; priority 3 × 10 s is what it waits."""
    scheduler = roomy("priority", max_num_seqs=1)
    served: list[str] = []
    for second in range(60):
        scheduler.add(make_request(f"urgent {second}", SHORT, max_tokens=1, arrival_time=float(second)))
        if second == 0:
            scheduler.add(make_request("patient", SHORT, max_tokens=1, priority=3, arrival_time=0.5))
        served += turn(scheduler)
    assert served.index("patient") == 31


def test_decode_goes_on_in_every_step() -> None:
    scheduler = roomy()
    decoding(scheduler, 20)
    for number in range(3):
        scheduler.add(make_request(f"long {number}", LONG))
    for _ in range(50):
        shares = turn(scheduler)
        assert all(shares[f"decode {number}"] == 1 for number in range(20))
        assert sum(shares.values()) <= BUDGET
    assert RequestKey("long 0", 0) in scheduler.kv.tables
