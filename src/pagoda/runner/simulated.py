"""SimulatedRunner: a runner without a model or a device that says how long each step would take."""

from __future__ import annotations

from collections import deque

from pagoda.core.step import RequestKey, RowResult, RunnerOutput, SchedulerOutput
from pagoda.errors import InvariantError
from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.step_time import StepTimer

TOKEN_ID = 0
"""What every request gets, as often as its max_tokens says."""


class SimulatedRunner:
    """Every row that samples gets `TOKEN_ID`; what a step costs and how long it takes is the cost model's word.

    Nothing waits: whoever turns the clock asks for `step_seconds` after `submit`. `step_cost` is of the same step.
    """

    def __init__(self, costs: CostModel, timer: StepTimer) -> None:
        self._costs = costs
        self._timer = timer
        self._in_flight: deque[SchedulerOutput] = deque()
        self._sampled: dict[RequestKey, RowResult] = {}  # what a row of each request gets, the same every time
        self.step_cost = StepCost(0, 0, 0, 0, 0)
        self.step_seconds = 0.0

    def submit(self, step: SchedulerOutput) -> None:
        for key in step.dropped:
            self._sampled.pop(key, None)
        for request in step.new:
            self._sampled[request.key] = RowResult(request.key, TOKEN_ID)
        self.step_cost = self._costs.step_cost([(row.start, row.num_tokens) for row in step.rows], step.num_logit_rows)
        self.step_seconds = self._timer.seconds(self.step_cost)
        self._in_flight.append(step)

    def collect(self) -> RunnerOutput:
        if not self._in_flight:
            raise InvariantError("collect: no step is in flight")
        step = self._in_flight.popleft()
        sampled = self._sampled
        rows = [sampled[row.key] if row.samples else RowResult(row.key) for row in step.rows]
        return RunnerOutput(step.step, tuple(rows))

    def close(self) -> None:
        """Nothing to release."""
