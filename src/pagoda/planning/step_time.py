"""StepTimer: how long a step takes. The planner's estimates and the simulator's clock ask the same one."""

from __future__ import annotations

from typing import Protocol

from pagoda.planning.costs import StepCost


class StepTimer(Protocol):
    """The engine's time on one device (or one tensor-parallel group), its own overhead included."""

    def seconds(self, cost: StepCost) -> float:
        """From the start of a step to its results being taken in."""
        ...

    @property
    def request_seconds(self) -> float:
        """What a request takes outside of steps before its first token: reading it, its template, its tokens."""
        ...

    @property
    def spread(self) -> tuple[float, float]:
        """Factors on `seconds` between which 90% of measured steps lay, such as (0.9, 1.15)."""
        ...

    @property
    def source(self) -> str:
        """Where the figures are from, for people: what was measured, and on what."""
        ...
