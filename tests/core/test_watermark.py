"""What admission leaves free: enough for those who run to grow, so that little that was computed is lost."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler
from pagoda.core.step import RowResult, RunnerOutput
from pagoda.core.watermark import NUM_REMEMBERED, ExpectedGrowth
from tests.core.driver import make_request, make_scheduler

END = 1


def generating(prompt: int, generated: int, max_tokens: int) -> Request:
    request = make_request("a", prompt, max_tokens)
    request.output_token_ids += [0] * generated
    return request


def having_seen(*lengths: int) -> ExpectedGrowth:
    """One that has seen requests of max_tokens 100 end with these lengths, and remembers nothing else."""
    watermark = ExpectedGrowth()
    for _ in range(NUM_REMEMBERED):
        for length in lengths:
            watermark.ended(generating(4, length, 100))
    return watermark


def test_the_worst_moment_is_just_before_somebody_ends() -> None:
    # Ends in 10 steps with 20 tokens, in 20 with 70, in 40 (the candidate) with 8: they grow by 30 in all until the first
    # ends, have 20 + 20 - 20 more then before the second does, and 40 - 20 - 70 before the last does.
    all_of_it = having_seen(100)
    running, candidate = [generating(10, 10, 20), generating(60, 10, 30)], generating(8, 0, 40)
    assert all_of_it.headroom(running, candidate, 100, 4) == -(-30 // 4)
    # One with little to give back, which ends first: then 3 x 10, and 2 x 20 - 1.
    assert all_of_it.headroom([generating(1, 0, 10), running[1]], candidate, 100, 4) == -(-(2 * 20 - 1) // 4)


def test_what_is_shared_does_not_come_back() -> None:
    sharing, candidate = generating(60, 10, 11), generating(8, 0, 40)
    all_of_it = having_seen(100)
    assert all_of_it.headroom([sharing], candidate, 100, 4) == 1
    sharing.num_cached_tokens = 48
    assert all_of_it.headroom([sharing], candidate, 100, 4) == (40 - (70 - 48)) // 4 + 1


def test_who_has_more_than_a_window_grows_no_more() -> None:
    windowed = ExpectedGrowth(window=16)
    # All are expected to generate 20 tokens more. With blocks of 4 they grow to 20 positions: by 0, 8, and 5 tokens.
    running, candidate = [generating(60, 0, 40), generating(12, 0, 40)], generating(15, 0, 40)
    assert windowed.headroom(running, candidate, 100, 4) == -(-13 // 4)
    assert ExpectedGrowth().headroom(running, candidate, 100, 4) == 3 * 20 // 4


def test_a_block_is_left_for_each_who_runs() -> None:
    assert having_seen(0).headroom([generating(8, 30, 31)] * 9, generating(8, 0, 1), 100, 16) == 9


def test_each_is_expected_to_do_as_one_of_those_who_went_further() -> None:
    watermark = having_seen(10, 20, 90)
    expected = set()
    for number in range(9):
        request = generating(4, 0, 50)
        request.order = (0.0, number)
        assert watermark.expected(request, 3) == watermark.expected(request, 3)
        expected.add(watermark.expected(request, 3))
    assert expected == {5, 10, 45}
    assert watermark.expected(generating(4, 0, 50), 12) == 45
    assert watermark.expected(generating(4, 0, 50), 45) == 50  # nobody did
    assert watermark.expected(generating(4, 0, 500), 460) == 500
    assert having_seen(10).expected(generating(4, 0, 500), 60) == 120


@dataclass
class Outcome:
    steps: int
    preemptions: int
    lost_tokens: int


def outcome(scheduler: Scheduler, seed: int, num_requests: int, mean: int = 300, most: int = 1024) -> Outcome:
    """Short questions, long answers: prompts of 8 to 40 tokens; outputs exponential; max_tokens is the same for all."""
    rng, lengths = random.Random(seed), dict[str, int]()
    for number in range(num_requests):
        lengths[f"{number}"] = min(most - 1, 1 + int(rng.expovariate(1 / mean)))
        prompt = tuple(rng.randrange(2, 60) for _ in range(rng.randint(8, 40)))
        ends = {"end_token_ids": frozenset({END}), "arrival_time": float(number)}
        scheduler.add(make_request(f"{number}", prompt, most, **ends))
    steps = lost = 0
    while scheduler.has_unfinished:
        step = scheduler.schedule()
        steps += 1
        lost += sum(preemption.lost_tokens for preemption in scheduler.preemptions)
        generated = {request.key: len(request.output_token_ids) for request in scheduler.running}
        rows = tuple(
            RowResult(
                row.key, (END if generated[row.key] == lengths[row.key.request_id] else 2) if row.samples else None
            )
            for row in step.rows
        )
        scheduler.update(RunnerOutput(step.step, rows))
    return Outcome(steps, scheduler.num_preemptions, lost)


def test_in_a_cache_that_is_too_small_fewer_lose_what_they_had() -> None:
    fields = {"num_blocks": 256, "block_size": 16, "max_num_seqs": 64, "max_batched_tokens": 256}
    one_each = outcome(make_scheduler(watermark=0.01, **fields), seed=1, num_requests=100)
    expecting = outcome(make_scheduler(watermark=None, **fields), seed=1, num_requests=100)
    assert one_each.preemptions > 50
    assert expecting.preemptions < one_each.preemptions / 1.5
    assert expecting.lost_tokens < one_each.lost_tokens / 1.5
    assert expecting.steps < 1.2 * one_each.steps


def test_where_all_have_room_for_all_they_may_need_nobody_waits() -> None:
    scheduler = make_scheduler(num_blocks=40, block_size=4, watermark=None)
    for name in "abcd":
        scheduler.add(make_request(name, 4, max_tokens=37))
    scheduler.schedule()
    assert scheduler.num_running == 4
