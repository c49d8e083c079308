"""Routers: balance, prefixes that stay together, and what happens when one of them is too much for its replica."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pagoda.simulation.routing import MORE_REQUESTS, LeastLoaded, PrefixAware, make_router
from pagoda.simulation.workload import Arrival

PLAIN = Arrival(0.0, 8, 8)


def with_prefix(name: str) -> Arrival:
    return Arrival(0.0, 8, 8, name, 4)


def test_round_robin_goes_around() -> None:
    router = make_router("round-robin", 3)
    assert [router.choose(PLAIN) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("routing", ["least-loaded", "prefix-aware"])
def test_loads_never_differ_by_more_than_one_while_nobody_ends(routing: str) -> None:
    router = make_router(routing, 7)  # type: ignore[arg-type]
    for count in range(1, 50):
        router.choose(PLAIN)
        loads = (router if isinstance(router, LeastLoaded) else router._load).loads  # type: ignore[attr-defined]
        assert sum(loads) == count
        assert max(loads) - min(loads) <= 1


def test_the_least_loaded_is_what_a_search_through_all_finds() -> None:
    numbers, router = random.Random(1), LeastLoaded(20)
    outstanding: list[int] = []
    for _ in range(5_000):
        if outstanding and numbers.random() < 0.49:
            replica = outstanding.pop(numbers.randrange(len(outstanding)))
            router.ended(replica)
        else:
            before = list(router.loads)
            chosen = router.choose(PLAIN)
            assert before[chosen] == min(before)
            outstanding.append(chosen)
        assert router.loads == [Counter(outstanding)[replica] for replica in range(20)]
        assert router.least == min(router.loads)


def test_among_idle_replicas_the_one_idle_longest_is_next() -> None:
    router = LeastLoaded(3)
    first = [router.choose(PLAIN) for _ in range(3)]
    for replica in (1, 2, 0):
        router.ended(replica)
    assert first == [0, 1, 2]
    assert [router.choose(PLAIN) for _ in range(3)] == [1, 2, 0]


def test_a_prefix_stays_with_its_replica() -> None:
    router = PrefixAware(4)
    homes = {name: router.choose(with_prefix(name)) for name in "abcd"}
    assert sorted(homes.values()) == [0, 1, 2, 3]
    for name in "dcbaabcd":
        assert router.choose(with_prefix(name)) == homes[name]


def test_a_prefix_moves_when_its_replica_has_much_more_than_another() -> None:
    router = PrefixAware(2)
    chosen = [router.choose(with_prefix("a")) for _ in range(MORE_REQUESTS + 2)]
    assert chosen == [0] * MORE_REQUESTS + [1, 1]
    # Much more also means 1.5 times as many: 25 against 17 are 8 more, but too few times as many.
    router = PrefixAware(2)
    for replica, load in ((0, 17), (1, 17)):
        for _ in range(load):
            router._load.add(replica)
    home = router.choose(with_prefix("b"))
    for _ in range(7):
        router._load.add(home)
    assert (router._load.loads[home], router._load.loads[1 - home]) == (25, 17)
    assert router.choose(with_prefix("b")) == home  # 25 < 1.5 × 17
    assert router.choose(with_prefix("b")) == 1 - home  # 26 ≥ 1.5 × 17


def test_ends_make_room_again() -> None:
    router = PrefixAware(2)
    for _ in range(MORE_REQUESTS):
        assert router.choose(with_prefix("a")) == 0
        router.ended(0)
    assert router.choose(with_prefix("a")) == 0
