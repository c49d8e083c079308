"""An AsyncLLM's outside without a model: as much of it as observability reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pagoda.config import EngineConfig
from pagoda.engine.stats import EngineStats
from pagoda.telemetry.steps import StepLog


def stats(*, busy_for: float | None = None, running: int = 0, waiting: int = 0, free: int = 64) -> EngineStats:
    """busy_for: how many seconds ago the step under way began; None: idle."""
    return EngineStats(
        turn_time=time.monotonic() - (busy_for or 0.0),
        has_work=busy_for is not None,
        num_running=running,
        num_waiting=waiting,
        num_blocks=64,
        num_free_blocks=free,
        num_preemptions=3,
    )


@dataclass(slots=True)
class StandInLLM:
    stats: EngineStats = field(default_factory=stats)
    failure: str | None = None
    num_open: int = 0
    max_open: int = 8
    step_log: StepLog = field(default_factory=StepLog)
    config: EngineConfig = field(default_factory=lambda: EngineConfig(model="tiny", max_waiting=8))
