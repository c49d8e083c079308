"""EngineCore: the step loop's body, `schedule → execute → update`, without threads, text or clients."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pagoda.core import invariants
from pagoda.core.request import Request
from pagoda.core.scheduler import Preemption, Scheduler
from pagoda.core.step import RequestKey, SchedulerOutput, TokenEvent
from pagoda.engine.messages import Abort, Message, Submit
from pagoda.engine.stats import EngineStats
from pagoda.errors import InvariantError, PagodaError
from pagoda.planning.costs import CostModel
from pagoda.runner.interface import Runner
from pagoda.telemetry.steps import StepLog, StepRecord

logger = logging.getLogger(__name__)

# What the idle engine may spend on looking through its books again, as a share of the time since the last look.
CHECKING_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class _InFlight:
    step: SchedulerOutput
    started: float
    scheduling_seconds: float
    preemptions: tuple[Preemption, ...]


class EngineCore:
    """Owns the requests: nothing happens to one except in a `turn`.

    depth: how many steps may be in flight beyond the one being collected. With 0 each step is collected before the next
    is scheduled; with 1 the next is scheduled while the device works.
    """

    def __init__(
        self, scheduler: Scheduler, runner: Runner, costs: CostModel, step_log: StepLog, depth: int = 0
    ) -> None:
        self.scheduler = scheduler
        self.step_log = step_log
        self._runner = runner
        self._costs = costs
        self._depth = depth
        self._in_flight: deque[_InFlight] = deque()
        self._last_collected = 0.0
        self._failed_steps = 0
        self._violations = 0
        self._next_check = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self._in_flight) or self.scheduler.has_unfinished

    def stats(self) -> EngineStats:
        scheduler, prefix = self.scheduler, self.scheduler.kv.prefix_stats
        return EngineStats(
            turn_time=time.monotonic(),
            has_work=self.has_work,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_blocks=scheduler.kv.num_blocks,
            num_free_blocks=scheduler.kv.num_free_blocks,
            num_preemptions=scheduler.num_preemptions,
            failed_steps=self._failed_steps,
            num_cached_blocks=scheduler.kv.num_cached_blocks,
            prefix=replace(prefix, misses=prefix.misses.copy()),
            violations=self._violations,
        )

    def turn(self, messages: Sequence[Message]) -> list[TokenEvent]:
        """Take in what arrived, then schedule and start a step, and collect one when enough are in flight."""
        events = [event for message in messages for event in self._handle(message)]
        if self.has_work:
            events += self._step()
        return events

    def check(self) -> bool:
        """Whether the books are clean, as they must be whenever nobody runs; True while anybody does.

        A violation is counted and logged with the state it was found in. As nobody has blocks then, no text can be wrong
        for it: all blocks are declared free, what was cached is forgotten, and the engine goes on. So a leak cannot keep
        those who wait waiting either. Raises `InvariantError` where even that does not clean the books.
        """
        if self._in_flight or self.scheduler.running:
            return True
        kv, started = self.scheduler.kv, time.monotonic()
        if kv.num_free_blocks == kv.num_blocks and started < self._next_check:
            return True
        try:
            invariants.check(self.scheduler)
        except InvariantError as error:
            self._violations += 1
            logger.critical("%s\nNobody runs: all KV blocks are declared free, and none is cached.", error)
            kv.reset()
            invariants.check(self.scheduler)
            return False
        ended = time.monotonic()
        self._next_check = ended + (ended - started) / CHECKING_SHARE
        return True

    def _handle(self, message: Message) -> list[TokenEvent]:
        if isinstance(message, Abort):
            return self.scheduler.abort(message.request_id, message.choice)
        return [event for request in _choices(message) for event in self._add(request)]

    def _step(self) -> list[TokenEvent]:
        started = time.perf_counter()
        step = self.scheduler.schedule()
        events = self._submit(step, started) if step.rows else []
        if self._in_flight and (len(self._in_flight) > self._depth or not step.rows):
            events += self._collect()
        return events

    def close(self) -> None:
        self._runner.close()

    def _add(self, request: Request) -> list[TokenEvent]:
        try:
            self.scheduler.add(request)
        except PagodaError as error:
            return [TokenEvent(request.key, 0, finish_reason="error", error=str(error))]
        return []

    def _submit(self, step: SchedulerOutput, started: float) -> list[TokenEvent]:
        scheduled = time.perf_counter()
        try:
            self._runner.submit(step)
        except Exception as error:
            return self._fail(step, error)
        preemptions = self.scheduler.preemptions
        for victim, lost_tokens, on_behalf_of in preemptions:
            logger.info("%s lost %d computed tokens, as %s needed a KV block", victim, lost_tokens, on_behalf_of)
        self._in_flight.append(_InFlight(step, started, scheduled - started, preemptions))
        return []

    def _collect(self) -> list[TokenEvent]:
        in_flight = self._in_flight.popleft()
        try:
            output = self._runner.collect()
        except Exception as error:
            return self._fail(in_flight.step, error)
        self._failed_steps = 0
        collected = time.perf_counter()
        events = self.scheduler.update(output)
        self._record(in_flight, collected, time.perf_counter())
        return events

    def _fail(self, step: SchedulerOutput, error: Exception) -> list[TokenEvent]:
        self._failed_steps += 1
        logger.error("step %d failed", step.step, exc_info=error)
        # Whatever went wrong below concerns the requests of this step; those that wait go on.
        return self.scheduler.fail_step(step, f"the step failed: {type(error).__name__}: {error}")

    def _record(self, in_flight: _InFlight, collected: float, ended: float) -> None:
        # With steps in flight the device starts a step when it has finished the one before, not when it was submitted.
        begun = max(in_flight.started, self._last_collected)
        self._last_collected = collected
        step = in_flight.step
        self.step_log.append(
            StepRecord.of(
                step,
                self._costs.step_cost(((row.start, row.num_tokens) for row in step.rows), step.num_logit_rows),
                seconds=ended - begun,
                overhead_seconds=in_flight.scheduling_seconds + ended - collected,
                ended=ended,
                num_free_blocks=self.scheduler.kv.num_free_blocks,
                num_waiting=self.scheduler.num_waiting,
                preemptions=in_flight.preemptions,
            )
        )


def _choices(message: Submit) -> Iterator[Request]:
    for choice in range(message.sampling.n):
        yield Request(
            key=RequestKey(message.request_id, choice),
            prompt_token_ids=message.prompt_token_ids,
            sampling=message.sampling,
            seed=message.seed,
            end_token_ids=message.end_token_ids,
            priority=message.priority,
            arrival_time=message.arrival_time,
            namespace=message.namespace,
        )
