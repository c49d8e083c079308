"""Each kind of broken bookkeeping is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pagoda.core import invariants
from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.prefix_cache import SHARED, CachedBlock, PrefixCache
from pagoda.core.request import Status
from pagoda.core.scheduler import Scheduler
from pagoda.core.step import RequestKey
from pagoda.errors import InvariantError
from tests.core.driver import make_request, make_scheduler, results

A = RequestKey("a", 0)


def busy() -> Scheduler:
    """Two running, the first with a token in flight; one waiting."""
    scheduler = make_scheduler(max_num_seqs=2, num_blocks=20)
    for name in "abc":
        scheduler.add(make_request(name, 6, max_tokens=9))
    scheduler.update(results(scheduler.schedule()))
    scheduler.schedule()
    return scheduler


def waiting_with_progress(scheduler: Scheduler) -> None:
    next(iter(scheduler.waiting)).num_computed_tokens = 1


def table_missing(scheduler: Scheduler) -> None:
    scheduler.kv.free(A)


def table_too_long(scheduler: Scheduler) -> None:
    scheduler.kv.allocate(A, 24)


def block_in_two_tables(scheduler: Scheduler) -> None:
    tables = scheduler.kv.tables
    tables[A][0] = tables[RequestKey("b", 0)][0]


def block_leaked(scheduler: Scheduler) -> None:
    scheduler.kv.pool.allocate(1)


def held_block_is_free(scheduler: Scheduler) -> None:
    scheduler.kv.pool._free[scheduler.kv.block_table(A)[0]] = None


def status_wrong(scheduler: Scheduler) -> None:
    scheduler.running[0].status = Status.FINISHED


def order_wrong(scheduler: Scheduler) -> None:
    scheduler.running.reverse()


def forgotten(scheduler: Scheduler) -> None:
    scheduler.requests.clear()


def pending_wrong(scheduler: Scheduler) -> None:
    scheduler.running[0].num_pending = 0


def computed_too_far(scheduler: Scheduler) -> None:
    scheduler.running[0].num_computed_tokens += 2


def too_many_tokens(scheduler: Scheduler) -> None:
    scheduler.running[0].output_token_ids += [0] * 9


def too_many_running(scheduler: Scheduler) -> None:
    scheduler.max_running = 1


def queue_miscounts(scheduler: Scheduler) -> None:
    scheduler.waiting._num_gone = 1


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (waiting_with_progress, "waits, but has 1 computed tokens"),
        (table_missing, "the requests that have blocks are not just those that run"),
        (table_too_long, "has 6 blocks, needs 2 and can at most use 4"),
        (block_in_two_tables, "counts 1 holders, but 2 tables list it"),
        (block_leaked, "counts 1 holders, but 0 tables list it"),
        (held_block_is_free, "has 1 holders and is free"),
        (status_wrong, "runs, but its status is finished"),
        (order_wrong, "out of order"),
        (forgotten, "not just those that run and those that wait"),
        (pending_wrong, "expects 0 tokens, but 1 are in flight"),
        (computed_too_far, "has computed 9 of 8 tokens"),
        (too_many_tokens, "was given more tokens than max_tokens"),
        (too_many_running, "2 requests run, but at most 1 may"),
        (queue_miscounts, "1 requests wait, but the queue counts 0"),
    ],
)
def test_each_kind_of_harm_is_found(harm: Callable[[Scheduler], None], message: str) -> None:
    scheduler = busy()
    invariants.check(scheduler)
    harm(scheduler)
    with pytest.raises(InvariantError, match=message):
        invariants.check(scheduler)


def test_an_idle_scheduler_that_has_lost_a_block_is_found() -> None:
    scheduler = make_scheduler()
    invariants.check(scheduler)
    scheduler.kv.allocate(A, 1)
    with pytest.raises(InvariantError, match="nobody runs, but not all blocks are free"):
        invariants.check(scheduler)


def test_the_report_shows_the_state() -> None:
    scheduler = busy()
    block_leaked(scheduler)
    with pytest.raises(InvariantError, match=r"a/0: 7 of 8 tokens computed, 1 pending, blocks \(0, 1\)"):
        invariants.check(scheduler)


def cached() -> Scheduler:
    """One text of four blocks in the cache, and one request that waits for what another has promised to compute."""
    scheduler = make_scheduler(num_blocks=20, max_batched_tokens=8, prefill_chunk=8, cache=PrefixCache(4))
    scheduler.add(make_request("a", TEXT, max_tokens=1))
    while scheduler.has_unfinished:
        scheduler.update(results(scheduler.schedule()))
    for name in "bc":
        scheduler.add(make_request(name, (*TEXT, *range(20)), max_tokens=9))
    scheduler.update(results(scheduler.schedule()))
    return scheduler


TEXT = tuple(range(30, 47))


def some_block(scheduler: Scheduler) -> CachedBlock:
    block = scheduler.kv.cache._by_block[scheduler.kv.block_table(RequestKey("b", 0))[2]]
    assert isinstance(block.parent, CachedBlock)
    return block


def dead_block_is_known(scheduler: Scheduler) -> None:
    some_block(scheduler).live = False


def known_by_another_number(scheduler: Scheduler) -> None:
    some_block(scheduler).block_id = 19


def other_tokens(scheduler: Scheduler) -> None:
    some_block(scheduler).token_ids = (1, 2, 3, 4)


def other_place(scheduler: Scheduler) -> None:
    some_block(scheduler).parent = SHARED


def not_found(scheduler: Scheduler) -> None:
    del scheduler.kv.cache._index[some_block(scheduler).chain_hash]


def evicted_and_there(scheduler: Scheduler) -> None:
    scheduler.kv.cache._evicted[some_block(scheduler).chain_hash] = None


def texts_miscounted(scheduler: Scheduler) -> None:
    scheduler.kv.cache._texts[some_block(scheduler).text_hash] += 1


def promise_forgotten(scheduler: Scheduler) -> None:
    scheduler.kv._held[RequestKey("b", 0)].promises.pop()


def known_too_far(scheduler: Scheduler) -> None:
    scheduler.kv._held[RequestKey("b", 0)].num_known += 1


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (dead_block_is_known, "is known as an overwritten"),
        (known_by_another_number, "is known as 19"),
        (other_tokens, "is found by another text than it holds"),
        (other_place, "is found by another text than it holds"),
        (not_found, "is kept, but not found"),
        (evicted_and_there, "is kept, but not found"),
        (texts_miscounted, "the texts that are counted are not those that are kept"),
        (promise_forgotten, "blocks count as promised, but the requests promise"),
        (known_too_far, "blocks into its text, but counts"),
    ],
)
def test_each_kind_of_harm_to_the_prefix_cache_is_found(harm: Callable[[Scheduler], None], message: str) -> None:
    scheduler = cached()
    assert scheduler.kv._promised
    invariants.check(scheduler)
    harm(scheduler)
    with pytest.raises(InvariantError, match=message):
        invariants.check(scheduler)


def test_after_a_reset_all_is_free_and_nothing_is_found() -> None:
    scheduler = cached()
    for name in "bc":
        scheduler.abort(name)
    scheduler.kv.pool.allocate(2)
    scheduler.kv.reset()
    invariants.check(scheduler)
    assert scheduler.kv.num_cached_blocks == 0
    scheduler.add(make_request("d", TEXT, max_tokens=1))
    assert scheduler.schedule().rows[0].start == 0


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda kv: kv.pool.allocate(3), "the runs handed out are not just those that are held"),
        (lambda kv: kv._tables.clear(), "the runs handed out are not just those that are held"),
        (lambda kv: kv.pool._gaps.clear(), "blocks 3 to 19 are lost"),
        (lambda kv: kv.pool._gaps.insert(0, (1, 2)), "blocks 1 to 2 are in two places"),
        (lambda kv: setattr(kv.pool, "num_free", 3), "3 blocks are counted as free"),
    ],
)
def test_so_is_each_kind_of_harm_to_runs_of_blocks(
    harm: Callable[[ContiguousKVCacheManager], object], message: str
) -> None:
    kv = ContiguousKVCacheManager(20, 4)
    kv.admit(A, 4, 12)
    assert list(kv.broken()) == []
    harm(kv)
    assert any(message in entry for entry in kv.broken())
    kv.reset()
    assert list(kv.broken()) == []
