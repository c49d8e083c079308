"""The fewest devices that keep an objective: replicas × devices of each, searched size by size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pagoda.errors import DoesNotFitError


@dataclass(frozen=True, slots=True)
class Candidate:
    """So many replicas of so many devices each.

    attainment: the share of requests that met the objective; None where it was not simulated. kept: whether that is
    enough. note: why it was not simulated, or empty.
    """

    replicas: int
    devices_per_replica: int
    attainment: float | None
    kept: bool
    note: str = ""

    @property
    def devices(self) -> int:
        return self.replicas * self.devices_per_replica


@dataclass(frozen=True, slots=True)
class Search:
    """best: with the fewest devices, of those with as many the one with the highest attainment; None: none is enough."""

    best: Candidate | None
    candidates: tuple[Candidate, ...]


def search_devices(
    attainment: Callable[[int, int], float],
    kept_at: Callable[[float], bool],
    sizes: Sequence[int],
    most_replicas: int,
) -> Search:
    """attainment: simulates (devices per replica, replicas), or raises `DoesNotFitError`. sizes: devices per replica to try.

    For each size the number of replicas is doubled until the objective is kept, then bisected; what could not be cheaper
    than the best so far is not simulated. Assumes that more replicas never make it worse.
    """
    found: list[Candidate] = []

    def tried(size: int, replicas: int) -> bool:
        share = attainment(size, replicas)
        found.append(Candidate(replicas, size, share, kept_at(share)))
        return found[-1].kept

    for size in sorted(set(sizes)):
        best = _best(found)
        # As many devices are worth a try too: fewer and larger replicas may serve better.
        most = most_replicas if best is None else min(most_replicas, best.devices // size)
        if most == 0:
            note = f"more than the {best.devices if best else 0} that are enough"
            found.append(Candidate(1, size, None, False, note))
            continue
        try:
            _least_replicas(partial(tried, size), most)
        except DoesNotFitError as error:
            found.append(Candidate(1, size, None, False, str(error)))
    return Search(_best(found), tuple(found))


def _least_replicas(kept: Callable[[int], bool], most: int) -> None:
    """Tries numbers from 1 to `most` until the least that is enough is known, if there is one."""
    low, high = 0, 1
    while not kept(high):
        if high == most:
            return
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)


def _best(candidates: Sequence[Candidate]) -> Candidate | None:
    kept = [candidate for candidate in candidates if candidate.kept]
    return min(kept, key=lambda candidate: (candidate.devices, -(candidate.attainment or 0.0)), default=None)
