"""What must be true of the scheduler and the KV blocks between any two calls. Cheap enough for tests after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagoda.core.request import Request, Status
from pagoda.errors import InvariantError

if TYPE_CHECKING:
    from pagoda.core.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    """Raise `InvariantError` with everything that is wrong and the state it was found in, if anything is.

    Every block is free, or held by exactly the tables that list it; what the prefix cache says a block holds is what it was
    given; tables are as long as needed and no longer than can ever be; each request under way is running or waiting, in
    order; where nobody runs all blocks are free.
    """
    wrong = [*scheduler.kv.broken(), *_requests(scheduler), *_tables(scheduler), *_in_flight(scheduler)]
    if not scheduler.running and scheduler.kv.num_free_blocks != scheduler.kv.num_blocks:
        wrong.append("nobody runs, but not all blocks are free")
    if wrong:
        raise InvariantError("\n".join([f"{len(wrong)} invariants are broken:", *wrong, *_dump(scheduler)]))


def _requests(scheduler: Scheduler) -> Iterator[str]:
    running, waiting = list(scheduler.running), list(scheduler.waiting)
    if len(waiting) != len(scheduler.waiting):
        yield f"{len(waiting)} requests wait, but the queue counts {len(scheduler.waiting)}"
    if len(running) > scheduler.max_running:
        yield f"{len(running)} requests run, but at most {scheduler.max_running} may"
    if [request.order for request in running] != sorted(request.order for request in running):
        yield "the running requests are out of order"
    under_way = {id(request) for choices in scheduler.requests.values() for request in choices.values()}
    if sorted(under_way) != sorted(id(request) for request in running + waiting):
        yield "the requests under way are not just those that run and those that wait, each once"
    for request in running:
        if request.status is not Status.RUNNING:
            yield f"{request.key} runs, but its status is {request.status.value}"
    for request in waiting:
        # Whoever comes with computed positions comes with all but its last token's.
        brought = 0 if request.num_preemptions else request.num_tokens - 1
        if request.num_computed_tokens not in (0, brought):
            yield f"{request.key} waits, but has {request.num_computed_tokens} computed tokens"
    for request in running + waiting:
        if request.num_computed_tokens > request.num_tokens:
            yield f"{request.key} has computed {request.num_computed_tokens} of {request.num_tokens} tokens"
        if len(request.output_token_ids) + request.num_pending > (request.sampling.max_tokens or 0):
            yield f"{request.key} was given more tokens than max_tokens"


def _tables(scheduler: Scheduler) -> Iterator[str]:
    kv, tables = scheduler.kv, scheduler.kv.tables
    if set(tables) != {request.key for request in scheduler.running}:
        yield "the requests that have blocks are not just those that run"
    for request in scheduler.running:
        has = kv.num_passed(request.key) + len(tables.get(request.key, ()))
        needs, most = kv.blocks_for(request.num_computed_tokens), kv.blocks_for(request.max_num_positions)
        if not needs <= has <= most:
            yield f"{request.key} has {has} blocks, needs {needs} and can at most use {most}"


def _in_flight(scheduler: Scheduler) -> Iterator[str]:
    pending = Counter(
        id(request)
        for flight in scheduler.in_flight
        for request, row in zip(flight.requests, flight.step.rows, strict=True)
        if row.samples
    )
    for request in [*scheduler.running, *scheduler.waiting]:
        if request.num_pending != pending[id(request)]:
            yield f"{request.key} expects {request.num_pending} tokens, but {pending[id(request)]} are in flight"


def _dump(scheduler: Scheduler) -> Iterator[str]:
    def line(request: Request) -> str:
        return (
            f"  {request.key.request_id}/{request.key.choice}: {request.num_computed_tokens} of {request.num_tokens}"
            f" tokens computed, {request.num_pending} pending, blocks {scheduler.kv.block_table(request.key)}"
        )

    yield f"{scheduler.kv.num_free_blocks} of {scheduler.kv.num_blocks} blocks free, {len(scheduler.in_flight)} steps in flight"
    yield f"running ({len(scheduler.running)}):"
    yield from (line(request) for request in scheduler.running)
    yield f"waiting ({len(scheduler.waiting)}), the first 20:"
    yield from (line(request) for request in sorted(scheduler.waiting, key=lambda request: request.order)[:20])
