"""StepRecord: what one step did and took. StepLog: the last so many of them, and totals over all."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from pagoda.core.scheduler import Preemption
from pagoda.core.step import SchedulerOutput
from pagoda.planning.costs import StepCost
from pagoda.planning.hardware import Hardware


class StepRecord(NamedTuple):
    """One step.

    decode_tokens: rows of one token that sample, in a request that was running before; prefill_tokens: all others.
    cost: what the step cannot do without.
    seconds: from the start of the step to its results being taken in; overhead_seconds: scheduling and bookkeeping.
    preemptions: who gave up its blocks for it, with how many computed tokens, and who needed one.
    ended: when its results had been taken in, on the clock of `time.perf_counter`.
    fraction_of_bandwidth, fraction_of_peak_compute: 0 to 1; None where the hardware's ceilings are not known.
    """

    step: int
    num_rows: int
    num_tokens: int
    prefill_tokens: int
    decode_tokens: int
    cost: StepCost
    seconds: float
    overhead_seconds: float
    ended: float = 0.0
    preemptions: tuple[Preemption, ...] = ()
    num_free_blocks: int = 0
    num_waiting: int = 0
    fraction_of_bandwidth: float | None = None
    fraction_of_peak_compute: float | None = None

    @property
    def num_preemptions(self) -> int:
        return len(self.preemptions)

    @property
    def lost_tokens(self) -> int:
        return sum([preemption.lost_tokens for preemption in self.preemptions])

    @property
    def flops(self) -> int:
        return self.cost.flops

    @property
    def num_bytes(self) -> int:
        return self.cost.num_bytes

    @classmethod
    def of(
        cls,
        step: SchedulerOutput,
        cost: StepCost,
        *,
        seconds: float,
        overhead_seconds: float,
        num_free_blocks: int,
        num_waiting: int,
        ended: float = 0.0,
        preemptions: tuple[Preemption, ...] = (),
        hardware: Hardware | None = None,
        dtype: str = "float32",
    ) -> StepRecord:
        """The record of a scheduled step that took so long. hardware, dtype: for the fractions."""
        entered = {request.key for request in step.new}
        decode = sum([row.num_tokens == 1 and row.samples and row.key not in entered for row in step.rows])
        num_tokens = step.num_tokens
        return cls(
            step=step.step,
            num_rows=len(step.rows),
            num_tokens=num_tokens,
            prefill_tokens=num_tokens - decode,
            decode_tokens=decode,
            cost=cost,
            seconds=seconds,
            overhead_seconds=overhead_seconds,
            ended=ended,
            preemptions=preemptions,
            num_free_blocks=num_free_blocks,
            num_waiting=num_waiting,
            fraction_of_bandwidth=hardware.fraction_of_bandwidth(cost.num_bytes, seconds) if hardware else None,
            fraction_of_peak_compute=(
                hardware.fraction_of_peak_compute(cost.flops, seconds, dtype) if hardware else None
            ),
        )


class StepTotals(NamedTuple):
    """Sums over every step ever logged."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    flops: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    overhead_seconds: float = 0.0
    preemptions: int = 0
    lost_tokens: int = 0

    def plus(self, record: StepRecord) -> StepTotals:
        return StepTotals(
            self.steps + 1,
            self.prefill_tokens + record.prefill_tokens,
            self.decode_tokens + record.decode_tokens,
            self.flops + record.flops,
            self.num_bytes + record.num_bytes,
            self.seconds + record.seconds,
            self.overhead_seconds + record.overhead_seconds,
            self.preemptions + record.num_preemptions,
            self.lost_tokens + record.lost_tokens,
        )


class StepLog:
    """Bounded: memory does not grow with the steps taken. One thread may append while others read."""

    def __init__(self, capacity: int = 4096) -> None:
        self._records: deque[StepRecord] = deque(maxlen=capacity)
        self._totals = StepTotals()
        self._lock = threading.Lock()

    def append(self, record: StepRecord) -> None:
        with self._lock:
            self._records.append(record)
            self._totals = self._totals.plus(record)

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """The last `capacity` steps, oldest first."""
        with self._lock:
            return tuple(self._records)

    @property
    def totals(self) -> StepTotals:
        """Over all steps, those the log no longer holds included."""
        return self._totals

    def since(self, step: int) -> tuple[StepRecord, ...]:
        """The steps held here with a number of at least `step`."""
        return tuple(record for record in self.records if record.step >= step)
