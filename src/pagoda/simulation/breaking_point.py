"""The load at which an objective breaks: a bisection over the rate of arrivals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# The two rates that enclose the point are this close at the end.
TOLERANCE = 1.02
# Rates are doubled, or halved, so often at most before the search is given up: a factor of a million.
MOST_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class Trial:
    """One rate that was simulated: the share of requests that met the objective, and whether that is enough."""

    rate: float
    attainment: float
    kept: bool


@dataclass(frozen=True, slots=True)
class BreakingPoint:
    """kept: the highest rate found at which the objective is kept; broken: the lowest above it at which it is not.

    kept is None where no rate tried is low enough, broken is None where none is high enough: so few requests that even
    all of them nearly at once are served in time. trials: in the order in which they were simulated.
    """

    kept: float | None
    broken: float | None
    trials: tuple[Trial, ...]


def find_breaking_point(
    attainment: Callable[[float], float], kept_at: Callable[[float], bool], start: float
) -> BreakingPoint:
    """attainment: simulates one rate. kept_at: whether that share is enough. start: the rate to begin at.

    Assumes that what is kept at a rate is kept at every lower one. One seed is one load at any rate, so chance does not
    differ between trials.
    """
    trials: list[Trial] = []

    def kept(rate: float) -> bool:
        share = attainment(rate)
        trials.append(Trial(rate, share, kept_at(share)))
        return trials[-1].kept

    low, high = _bracket(kept, start)
    while low is not None and high is not None and high > low * TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return BreakingPoint(low, high, tuple(trials))


def _bracket(kept: Callable[[float], bool], start: float) -> tuple[float | None, float | None]:
    """Two rates, a factor of two apart, between which the objective breaks; None for one that was not found."""
    rate = start
    if kept(rate):
        for _ in range(MOST_DOUBLINGS):
            if not kept(2 * rate):
                return rate, 2 * rate
            rate *= 2
        return rate, None
    for _ in range(MOST_DOUBLINGS):
        if kept(rate / 2):
            return rate / 2, rate
        rate /= 2
    return None, rate
