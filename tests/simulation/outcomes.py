"""Results made by hand."""

from __future__ import annotations

from collections.abc import Iterable

from pagoda.simulation.result import Outcomes, ReplicaUse, Result
from pagoda.simulation.workload import Arrival, Outcome


def served(arrival: float, first_token: float, end: float, *, prompt: int = 10, output: int = 5) -> Outcome:
    return Outcome(Arrival(arrival, prompt, output), first_token, end, 0)


def refused(arrival: float) -> Outcome:
    return Outcome(Arrival(arrival, 10, 5), None, None, 0, refusal="too long")


def result(outcomes: Iterable[Outcome], *uses: ReplicaUse, num_blocks: int = 100) -> Result:
    kept = Outcomes()
    for outcome in outcomes:
        kept.append(outcome)
    ends = [outcome.end for outcome in kept if outcome.end is not None]
    started = min((outcome.arrival.time for outcome in kept), default=0.0)
    return Result(kept, uses or (ReplicaUse(),), started, max(ends, default=started), num_blocks, 16)
