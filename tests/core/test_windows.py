"""Where every layer has a window, a running request gives up what it will not see again."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import Text
from pagoda.core.prefix_cache import SHARED, Prefix, PrefixCache
from pagoda.core.step import RequestKey
from tests.core.driver import Driver, alone, make_request, make_scheduler
from tests.core.test_random_traffic import random_request, random_scheduler
from tests.soak import soak_count

RUNS = soak_count(500)
A, B = RequestKey("a", 0), RequestKey("b", 0)


def test_blocks_before_the_window_are_free_and_the_others_keep_their_places() -> None:
    kv = KVCacheManager(8, 4, window=6)
    assert kv.admit(A, 10, 30) == (0, 1, 2)
    # Position 9 sees 4 to 9: block 0 is passed. Position 8 sees 3, which is in it.
    assert kv.allocate(A, 10, 8) == ()
    assert kv.num_passed(A) == 0
    assert kv.allocate(A, 13, 9) == (3,)
    assert kv.num_passed(A) == 1
    assert kv.block_table(A) == (0, 1, 2, 3)
    assert kv.tables == {A: [1, 2, 3]}
    assert kv.num_free_blocks == 5
    assert list(kv.broken()) == []
    kv.free(A)
    assert kv.num_free_blocks == 8
    assert list(kv.broken()) == []


def test_without_a_window_nothing_is_given_up() -> None:
    kv = KVCacheManager(8, 4)
    kv.admit(A, 10, 30)
    kv.allocate(A, 30, 29)
    assert (kv.num_passed(A), kv.num_free_blocks) == (0, 0)


def test_what_is_given_up_can_be_found_until_it_is_overwritten_and_nothing_behind_it_afterwards() -> None:
    cache = PrefixCache(4)
    kv = KVCacheManager(5, 4, cache, window=4)
    text = list(range(20))
    kv.admit(A, 12, 20, Text(SHARED, text[:12]))
    kv.commit(A, text[:12], 12)
    kv.allocate(A, 13, 12)
    assert kv.num_passed(A) == 2
    assert kv.num_free_blocks == 3
    found = kv.find_prefix(SHARED, [*text[:12], 99], Prefix())
    assert [block.block_id for block in found.blocks] == [0, 1, 2]
    # Block 4 has never been used and block 0 is the longest unused of the others: B overwrites both.
    assert kv.admit(B, 8, 8) == (4, 0)
    assert found.blocks[-1].live
    assert kv.find_prefix(SHARED, [*text[:12], 99], found).blocks == ()
    assert kv.find_prefix(SHARED, [*text[:12], 99], Prefix()).blocks == ()
    assert list(kv.broken()) == []


def test_a_block_is_not_given_up_before_the_cache_knows_it() -> None:
    kv = KVCacheManager(8, 4, PrefixCache(4), window=1)
    kv.admit(A, 8, 20, Text(SHARED, range(8)))
    kv.allocate(A, 9, 8)
    assert kv.num_passed(A) == 0
    kv.commit(A, list(range(8)), 8)
    kv.allocate(A, 9, 8)
    assert kv.num_passed(A) == 2


def test_a_cache_that_is_too_small_for_whole_texts_runs_them_without_preemption() -> None:
    def preemptions(window: int | None) -> int:
        driver = Driver(make_scheduler(num_blocks=16, block_size=4, window=window, watermark=0.0))
        requests = [make_request(name, 8, 48) for name in ("a", "bb", "ccc")]
        driver.add(*requests)
        driver.finish()
        for request in requests:
            assert driver.received[request.key] == alone(request, window)
        return driver.scheduler.num_preemptions

    # 14 blocks each in the end, of which a window of 8 positions touches 3.
    assert preemptions(8) == 0
    assert preemptions(None) > 0


def test_as_many_enter_as_their_windows_leave_room_for() -> None:
    def at_once(window: int | None) -> int:
        driver = Driver(make_scheduler(num_blocks=16, block_size=4, window=window, watermark=None))
        driver.add(*[make_request(name, 8, 48) for name in ("a", "bb", "ccc")])
        driver.turn()
        return driver.scheduler.num_running

    assert (at_once(8), at_once(None)) == (3, 1)


def test_who_waits_enters_when_a_running_request_has_given_up_enough() -> None:
    driver = Driver(make_scheduler(num_blocks=22, window=8, max_batched_tokens=64, prefill_chunk=64))
    driver.add(make_request("runs", 40, 40))
    driver.turn()
    driver.add(make_request("waits", 52, 4))
    # 12 of the 22 blocks are free, and 14 are needed, until the second step gives up 8.
    driver.turn()
    assert driver.scheduler.num_running == 2
    driver.finish()


@pytest.mark.parametrize("depth", [0, 1])
def test_windows_change_no_text_whatever_the_traffic(depth: int) -> None:
    """With prefix cache and preemption; a runner that reads anything that was given up finds another text, or none."""
    counts: Counter[str] = Counter()
    for seed in range(RUNS):
        rng = random.Random(seed)
        window = rng.choice([1, 2, 3, 5, 8, 16])
        driver = Driver(random_scheduler(rng, lambda window=window: {"window": window}), depth)
        kv, requests = driver.scheduler.kv, []
        for number in range(rng.randint(1, 20)):
            requests.append(random_request(rng, f"r{number}", driver.scheduler))
            driver.add(requests[-1])
            for _ in range(rng.choice([0, 1, 5])):
                driver.turn()
                counts["passed"] += sum(kv.num_passed(key) for key in kv.tables)
        driver.finish()
        for request in requests:
            assert driver.received[request.key] == alone(request, window), f"seed {seed}, {request.key}"
        counts["preemptions"] += driver.scheduler.num_preemptions
        counts["hits"] += kv.prefix_stats.hit_tokens
    assert counts["passed"] > 20 * RUNS
    assert counts["hits"] > 2 * RUNS
    assert counts["preemptions"] > 0
