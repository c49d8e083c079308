"""Routers: which replica a request goes to. Each choice takes constant time, however many replicas there are.

A router knows what one in front of real replicas knows: how many requests each of them has not ended yet, and the name of a
request's prefix. How long an answer becomes, nobody knows before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from pagoda.simulation.cluster import Routing
from pagoda.simulation.workload import Arrival

# A prefix leaves its replica where that has both so many requests more, and so many times as many, as the least loaded
# one: the two conditions of SGLang's cache-aware router (`balance_abs_threshold`, `balance_rel_threshold`). Its first is
# 64, for replicas that run hundreds at once; ours run 64 unless told otherwise.
MORE_REQUESTS = 8
TIMES_AS_MANY = 1.5


class Router(Protocol):
    """Chooses for each request once, and is told when the request has left that replica."""

    def choose(self, arrival: Arrival) -> int:
        """The replica, from 0; the request counts as outstanding there from now on."""
        ...

    def ended(self, replica: int) -> None:
        """One of the replica's requests is over (finished, refused, or handed to another)."""
        ...


class RoundRobin:
    """One after the other, whatever they do."""

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas, self._next = num_replicas, 0

    def choose(self, arrival: Arrival) -> int:
        chosen = self._next
        self._next = (chosen + 1) % self._num_replicas
        return chosen

    def ended(self, replica: int) -> None:
        pass


class LeastLoaded:
    """The replica with the fewest outstanding requests; of several, the one that has had that number longest."""

    def __init__(self, num_replicas: int) -> None:
        self.loads = [0] * num_replicas
        # Replicas by their number of requests. Loads change by one, so the least is found again in one step.
        self._by_load: list[OrderedDict[int, None]] = [OrderedDict.fromkeys(range(num_replicas))]
        self.least = 0

    def choose(self, arrival: Arrival) -> int:
        chosen = next(iter(self._by_load[self.least]))
        self.add(chosen)
        return chosen

    def add(self, replica: int) -> None:
        """One request more for a replica that somebody else chose."""
        load = self.loads[replica]
        if load + 1 == len(self._by_load):
            self._by_load.append(OrderedDict())
        self._move(replica, load + 1)
        if load == self.least and not self._by_load[load]:
            self.least = load + 1

    def ended(self, replica: int) -> None:
        load = self.loads[replica] - 1
        self._move(replica, load)
        self.least = min(self.least, load)

    def _move(self, replica: int, load: int) -> None:
        del self._by_load[self.loads[replica]][replica]
        self._by_load[load][replica] = None
        self.loads[replica] = load


class PrefixAware:
    """Requests of one prefix go to one replica, and to the least loaded one if that is much more loaded, which then
    becomes the prefix's. Requests without a prefix go to the least loaded replica.
    """

    def __init__(self, num_replicas: int) -> None:
        self._load = LeastLoaded(num_replicas)
        self._home: dict[str, int] = {}

    def choose(self, arrival: Arrival) -> int:
        if arrival.prefix is None:
            return self._load.choose(arrival)
        home = self._home.get(arrival.prefix)
        if home is not None and not self._overloaded(home):
            self._load.add(home)
            return home
        chosen = self._home[arrival.prefix] = self._load.choose(arrival)
        return chosen

    def ended(self, replica: int) -> None:
        self._load.ended(replica)

    def _overloaded(self, replica: int) -> bool:
        load, least = self._load.loads[replica], self._load.least
        return load >= least + MORE_REQUESTS and load >= TIMES_AS_MANY * least


ROUTERS: Mapping[Routing, Callable[[int], Router]] = MappingProxyType(
    {"round-robin": RoundRobin, "least-loaded": LeastLoaded, "prefix-aware": PrefixAware}
)


def make_router(routing: Routing, num_replicas: int) -> Router:
    """The router that `ClusterConfig.routing` names, over replicas 0 … num_replicas - 1."""
    return ROUTERS[routing](num_replicas)
