"""StepPlan and InFlight: a step while the scheduler puts it together, and on its way through the runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagoda.core.request import Request
from pagoda.core.step import NewRequest, RequestKey, ScheduledRow, SchedulerOutput


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step on its way through the runner, and whose its rows are.

    committed: blocks that can be found in the prefix cache since it was scheduled, by who computes them.
    """

    step: SchedulerOutput
    requests: tuple[Request, ...]
    committed: Mapping[RequestKey, tuple[int, ...]]


@dataclass(slots=True)
class StepPlan:
    """A step while it is put together. `budget`: tokens that may still be added to it."""

    budget: int
    prompts: int = 0
    rows: list[ScheduledRow] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    new: list[NewRequest] = field(default_factory=list)
    committed: dict[RequestKey, tuple[int, ...]] = field(default_factory=dict)
