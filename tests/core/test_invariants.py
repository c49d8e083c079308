"""Each kind of broken bookkeeping is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pagoda.core import invariants
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
    with pytest.raises(InvariantError, match="nothing is under way, but not all blocks are free"):
        invariants.check(scheduler)


def test_the_report_shows_the_state() -> None:
    scheduler = busy()
    block_leaked(scheduler)
    with pytest.raises(InvariantError, match=r"a/0: 7 of 8 tokens computed, 1 pending, blocks \(0, 1\)"):
        invariants.check(scheduler)
