"""Random traffic, with the invariants after every call, against each request run alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.mixing import DecodeFirst, Mixed, OneBatchAtATime, PrefillFirst
from pagoda.core.prefix_cache import Miss, Namespace, PrefixCache
from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler
from tests.core.driver import VOCAB_SIZE, Driver, alone, make_request, make_scheduler
from tests.soak import soak_count

RUNS = soak_count(800)
EXAMPLES = soak_count(600)


Variant = Callable[[], dict[str, object]]

# How blocks are allocated and steps are mixed, beside the engine's own way; new objects for each scheduler.
VARIANTS: dict[str, Variant] = {
    "contiguous": lambda: {"manager": ContiguousKVCacheManager},
    "prefill-first": lambda: {"mixing": PrefillFirst()},
    "decode-first": lambda: {"mixing": DecodeFirst()},
    "static": lambda: {"mixing": OneBatchAtATime(Mixed())},
    "static, prefill-first, contiguous": lambda: {
        "manager": ContiguousKVCacheManager,
        "mixing": OneBatchAtATime(PrefillFirst()),
    },
    "static, decode-first": lambda: {"mixing": OneBatchAtATime(DecodeFirst())},
}


def random_scheduler(rng: random.Random, variant: Variant = dict) -> Scheduler:
    """From roomy to so cramped that preemption is the rule."""
    block_size = rng.choice([1, 2, 3, 4, 16])
    max_batched_tokens = rng.choice([1, 2, 5, 16, 64])
    return make_scheduler(
        num_blocks=max(2, rng.choice([30, 60, 200, 400]) // block_size),
        block_size=block_size,
        max_num_seqs=rng.choice([1, 2, 3, 8, 20]),
        max_batched_tokens=max_batched_tokens,
        prefill_chunk=rng.choice([1, 3, max(1, max_batched_tokens // 2), max_batched_tokens]),
        policy=rng.choice(["fcfs", "priority"]),
        watermark=rng.choice([0.0, 0.01, 0.2, None]),
        cache=rng.choice([None, PrefixCache(block_size), PrefixCache(block_size, hash_of_8_bits, num_remembered=8)]),
        **variant(),  # type: ignore[arg-type]
    )


def hash_of_8_bits(before: int, token_ids: tuple[int, ...]) -> int:
    """So few values that different texts meet all the time."""
    return hash((before, token_ids)) & 0xFF


def random_prompt(rng: random.Random, length: int) -> tuple[int, ...]:
    """New, or the beginning of one of a few texts and then new."""
    text = random.Random(rng.randrange(2))
    kept = rng.choice([0, length, length, rng.randint(0, length)])
    shared = [text.randrange(VOCAB_SIZE) for _ in range(kept)]
    return (*shared, *(rng.randrange(VOCAB_SIZE) for _ in range(length - kept)))


def random_request(rng: random.Random, name: str, scheduler: Scheduler, choice: int = 0) -> Request:
    """One that fits."""
    room = scheduler.kv.num_blocks * scheduler.kv.block_size
    prompt = rng.randint(1, rng.choice([3, max(3, room // 2), max(3, room // 3)]))
    scored = rng.random() < 0.3
    max_tokens = 0 if scored and rng.random() < 0.3 else rng.randint(1, max(1, min(20, room - prompt)))
    return make_request(
        name,
        random_prompt(rng, prompt),
        max_tokens,
        choice=choice,
        end_token_ids=frozenset({5, 6}) if rng.random() < 0.5 else frozenset(),
        stop_token_ids=(rng.randrange(VOCAB_SIZE),) if rng.random() < 0.5 else (),
        min_tokens=rng.randint(0, max_tokens),
        temperature=rng.choice([0.0, 1.0]),
        logprobs=rng.choice([None, 0, 2]),
        prompt_logprobs=rng.choice([0, 2]) if scored else None,
        seed=rng.randrange(1000),
        priority=rng.randint(-3, 3),
        arrival_time=rng.random() * 10,
        namespace=Namespace(tenant=rng.choice(["", "", "other"])),
    )


@pytest.mark.parametrize("depth", [0, 1])
def test_every_request_gets_what_it_gets_alone_whatever_the_traffic(depth: int) -> None:
    num_steps = num_preemptions = hit_tokens = 0
    misses: Counter[Miss] = Counter()
    for seed in range(RUNS):
        rng = random.Random(seed)
        driver = Driver(random_scheduler(rng), depth)
        requests: list[Request] = []
        for number in range(rng.randint(1, 25)):
            for choice in range(rng.choice([1, 1, 1, 3])):
                requests.append(random_request(rng, f"r{number}", driver.scheduler, choice))
                driver.add(requests[-1])
            for _ in range(rng.choice([0, 0, 1, 5])):
                driver.turn()
        driver.finish()
        for request in requests:
            assert driver.received[request.key] == alone(request), f"seed {seed}, {request.key}"
        num_steps += len(driver.steps)
        num_preemptions += driver.scheduler.num_preemptions
        hit_tokens += driver.scheduler.kv.prefix_stats.hit_tokens
        misses += driver.scheduler.kv.prefix_stats.misses
    assert num_steps > 50 * RUNS
    assert num_preemptions > RUNS / 2
    assert hit_tokens > 10 * RUNS
    assert all(misses[reason] for reason in Miss)


@pytest.mark.parametrize("depth", [0, 1])
def test_who_goes_on_from_a_text_that_failed_or_ended_gets_what_it_gets_alone(depth: int) -> None:
    ends: Counter[str | None] = Counter()
    for seed in range(RUNS):
        rng = random.Random(seed)
        driver = Driver(random_scheduler(rng), depth)
        room = driver.scheduler.kv.num_blocks * driver.scheduler.kv.block_size
        requests: list[Request] = []
        for number in range(rng.randint(5, 25)):
            before = rng.choice(requests) if requests else None
            text = () if before is None else (*before.prompt_token_ids, *driver.received[before.key].token_ids)
            prompt = (*text, *random_prompt(rng, 3))[: max(1, room - 8)]
            # Choices that are all the likeliest compute the same blocks at the same time.
            for choice in range(rng.choice([1, 2])):
                request = make_request(f"r{number}", prompt, max(1, min(8, room - len(prompt))), choice=choice)
                requests.append(request)
                driver.add(request)
            for _ in range(rng.choice([0, 2, 5, 9])):
                driver.turn(fail=rng.choice([None] * 8 + ["submit", "collect"]))
        driver.finish()
        for request in requests:
            received, expected = driver.received[request.key], alone(request)
            assert received.token_ids == expected.token_ids[: len(received.token_ids)], f"seed {seed}, {request.key}"
            ends[received.finish_reason] += 1
            assert received.finish_reason == "error" or received == expected
    assert ends["length"] > 5 * RUNS
    assert ends["error"] > RUNS


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_nor_does_it_matter_how_blocks_are_allocated_and_steps_are_mixed(variant: str, depth: int) -> None:
    num_preemptions = 0
    for seed in range(RUNS // 25):
        rng = random.Random(seed)
        driver = Driver(random_scheduler(rng, VARIANTS[variant]), depth)
        requests = [random_request(rng, f"r{number}", driver.scheduler) for number in range(rng.randint(1, 25))]
        for request in requests:
            driver.add(request)
            for _ in range(rng.choice([0, 0, 1, 5])):
                driver.turn()
        driver.finish()
        for request in requests:
            assert driver.received[request.key] == alone(request), f"seed {seed}, {request.key}"
        num_preemptions += driver.scheduler.num_preemptions
    assert (num_preemptions > 0) == ("contiguous" not in variant)


class Traffic(RuleBasedStateMachine):
    """Arrivals, aborts and failing steps in any order that hypothesis can think of."""

    @initialize(
        seed=st.integers(0, 2**32), depth=st.sampled_from([0, 1]), variant=st.sampled_from([dict, *VARIANTS.values()])
    )
    def start(self, seed: int, depth: int, variant: Variant) -> None:
        self.rng = random.Random(seed)
        self.driver = Driver(random_scheduler(self.rng, variant), depth)
        self.requests: dict[tuple[str, int], Request] = {}
        self.next_id = 0

    @rule(choices=st.integers(1, 3))
    def add(self, choices: int) -> None:
        name, self.next_id = f"r{self.next_id}", self.next_id + 1
        for choice in range(choices):
            request = random_request(self.rng, name, self.driver.scheduler, choice)
            self.requests[request.key] = request
            self.driver.add(request)

    @rule(turns=st.integers(1, 6))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.driver.turn()

    @rule(pick=st.randoms(use_true_random=False))
    def abort(self, pick: random.Random) -> None:
        if self.requests:
            self.driver.abort(pick.choice(sorted(self.requests))[0], pick.choice([None, 0, 1]))

    @rule(pick=st.randoms(use_true_random=False))
    def abort_and_submit_again(self, pick: random.Random) -> None:
        """The same key for another request, while results for the old one may still be in flight."""
        if self.requests:
            key = pick.choice(sorted(self.requests))
            self.driver.abort(*key)
            self.requests[key] = random_request(self.rng, key[0], self.driver.scheduler, key[1])
            self.driver.add(self.requests[key])

    @rule(where=st.sampled_from(["submit", "collect"]))
    def fail(self, where: str) -> None:
        self.driver.turn(fail=where)

    @invariant()
    def what_was_received_is_right_so_far(self) -> None:
        for key, received in self.driver.received.items():
            if received.finish_reason in ("abort", "error"):
                expected = alone(self.requests[key])
                assert received.token_ids == expected.token_ids[: len(received.token_ids)]

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.finish()
        for key, received in self.driver.received.items():
            if received.finish_reason in ("stop", "length"):
                assert received == alone(self.requests[key])


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, derandomize=True, database=None, deadline=None
)
