"""Contiguous allocation: what is reserved, and who waits for it."""

from __future__ import annotations

import pytest

from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.step import RequestKey
from pagoda.errors import InvariantError
from tests.core.driver import Driver, make_request, make_scheduler

A, B = RequestKey("a", 0), RequestKey("b", 0)


def test_everything_is_reserved_at_admission() -> None:
    kv = ContiguousKVCacheManager(8, 4)
    assert kv.admit(A, 5, 17) == (0, 1, 2, 3, 4)
    assert kv.allocate(A, 17) == ()
    assert kv.block_table(A) == (0, 1, 2, 3, 4)
    assert (kv.num_free_blocks, kv.largest_allocation) == (3, 3)
    assert kv.can_admit(1, 12, headroom=3)
    assert not kv.can_admit(1, 13, headroom=0)
    assert kv.admit(B, 1, 13) is None
    kv.free(A)
    assert (kv.num_free_blocks, kv.block_table(A)) == (8, ())


def test_misuse_is_caught_at_once() -> None:
    kv = ContiguousKVCacheManager(8, 4)
    kv.admit(A, 1, 4)
    with pytest.raises(InvariantError, match="has blocks already"):
        kv.admit(A, 1, 4)
    with pytest.raises(InvariantError, match="has reserved 1"):
        kv.allocate(A, 5)
    with pytest.raises(InvariantError, match="has none"):
        kv.free(B)


def test_fragments_make_a_contiguous_request_wait_and_a_paged_one_run() -> None:
    """Of four requests with 4 blocks each, two end. 10 of 18 blocks are free then, in gaps of 4, 4 and 2."""

    def runs_at_once(manager: type[KVCacheManager | ContiguousKVCacheManager]) -> bool:
        driver = Driver(
            make_scheduler(num_blocks=18, block_size=4, max_batched_tokens=64, manager=manager, watermark=0.0)
        )
        # 16 positions each (the last token needs none), but the second and the fourth run longer.
        lengths = {"1st": (13, 4), "2nd": (9, 8), "3rd": (13, 4), "4th": (9, 8)}
        driver.add(*[make_request(name, prompt, output) for name, (prompt, output) in lengths.items()])
        for _ in range(4):
            driver.turn()
        assert [request.key.request_id for request in driver.scheduler.running] == ["2nd", "4th"]
        assert driver.scheduler.kv.num_free_blocks >= 10
        driver.add(make_request("wide", 20, 1))  # 5 blocks
        driver.turn()
        ran = driver.received[RequestKey("wide", 0)].finish_reason == "length"
        driver.finish()
        return ran

    assert runs_at_once(KVCacheManager)
    assert not runs_at_once(ContiguousKVCacheManager)


def test_nobody_is_preempted_where_paged_requests_are() -> None:
    """Two requests of 3 blocks each in 5 blocks: paged, both enter and one must give way; contiguous, the second waits."""
    preemptions = {}
    for manager in (KVCacheManager, ContiguousKVCacheManager):
        driver = Driver(make_scheduler(num_blocks=5, block_size=4, manager=manager, watermark=0.0))
        driver.add(make_request("a", 4, 9), make_request("b", 4, 9))
        driver.finish()
        preemptions[manager] = driver.scheduler.num_preemptions
    assert preemptions == {KVCacheManager: 1, ContiguousKVCacheManager: 0}
