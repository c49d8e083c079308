"""Where an objective breaks, and how many devices keep it, on models of which both are known."""

from __future__ import annotations

import pytest

from pagoda.errors import DoesNotFitError
from pagoda.simulation.breaking_point import TOLERANCE, find_breaking_point
from pagoda.simulation.search import search_devices


def enough(share: float) -> bool:
    return share >= 0.99


@pytest.mark.parametrize("start", [0.01, 1.0, 3.69, 500.0])
def test_the_breaking_point_is_enclosed(start: float) -> None:
    point = find_breaking_point(lambda rate: 1.0 if rate <= 3.7 else 0.5, enough, start)
    assert point.kept is not None
    assert point.broken is not None
    assert point.kept <= 3.7 < point.broken <= point.kept * TOLERANCE
    assert point.trials[0].rate == start
    assert {point.kept, point.broken} <= {trial.rate for trial in point.trials}
    assert all(trial.kept == (trial.rate <= 3.7) for trial in point.trials)
    assert len({trial.rate for trial in point.trials}) == len(point.trials)


def test_what_never_breaks_and_what_is_never_kept() -> None:
    never = find_breaking_point(lambda rate: 1.0, enough, 2.0)
    assert (never.kept, never.broken) == (2.0 * 2**20, None)
    broken = find_breaking_point(lambda rate: 0.0, enough, 2.0)
    assert (broken.kept, broken.broken) == (None, 2.0 / 2**20)


@pytest.mark.parametrize("needed", [1, 2, 3, 7, 8, 33, 64])
def test_the_fewest_replicas_are_found(needed: int) -> None:
    found = search_devices(lambda size, replicas: min(1.0, replicas / needed), enough, [1], 64)
    assert found.best is not None
    assert found.best.replicas == needed
    tried = [candidate.replicas for candidate in found.candidates]
    assert len(set(tried)) == len(tried) <= 12


def test_too_few_replicas_allowed() -> None:
    found = search_devices(lambda size, replicas: replicas / 100, enough, [1, 2], 8)
    assert found.best is None
    assert [(each.devices_per_replica, each.replicas) for each in found.candidates] == [
        (size, replicas) for size in (1, 2) for replicas in (1, 2, 4, 8)
    ]


def test_the_cheapest_of_several_sizes() -> None:
    # Needed are 9 replicas of 1, 3 of 2 or 2 of 4 devices; one device of 8 could never be cheaper than 6.
    needs = {1: 9, 2: 3, 4: 2, 8: 1}
    found = search_devices(lambda size, replicas: min(1.0, replicas / needs[size]), enough, [8, 4, 1, 2], 64)
    assert found.best is not None
    assert (found.best.replicas, found.best.devices_per_replica, found.best.devices) == (3, 2, 6)
    by_four = [each for each in found.candidates if each.devices_per_replica == 4]
    assert [(each.replicas, each.kept) for each in by_four] == [(1, False)]  # 2 × 4 are more than 6
    (by_eight,) = (each for each in found.candidates if each.devices_per_replica == 8)
    assert (by_eight.attainment, by_eight.note) == (None, "more than the 6 that are enough")


def test_of_as_many_devices_the_better_served_is_best() -> None:
    shares = {(1, 1): 0.5, (1, 2): 0.99, (2, 1): 1.0}
    found = search_devices(lambda size, replicas: shares[size, replicas], enough, [1, 2], 2)
    assert found.best is not None
    assert (found.best.devices_per_replica, found.best.replicas) == (2, 1)


def test_a_size_on_which_the_model_does_not_fit() -> None:
    def attained(size: int, replicas: int) -> float:
        if size < 4:
            raise DoesNotFitError("140 GB of weights")
        return 1.0

    found = search_devices(attained, enough, [2, 4], 8)
    assert found.best is not None
    assert found.best.devices == 4
    assert found.candidates[0].note == "140 GB of weights"
