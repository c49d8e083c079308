"""Pool: replicas among which a router chooses. Link: the wire on which one of them sends K and V."""

from __future__ import annotations

from pagoda.simulation.cluster import Routing
from pagoda.simulation.routing import Router, make_router
from pagoda.simulation.workload import Arrival


class Pool:
    """Some consecutive replicas of a cluster. Replicas are numbered as in the whole cluster."""

    def __init__(self, routing: Routing, replicas: range) -> None:
        self._first = replicas.start
        self._router: Router = make_router(routing, len(replicas))

    def choose(self, arrival: Arrival) -> int:
        return self._first + self._router.choose(arrival)

    def ended(self, replica: int) -> None:
        self._router.ended(replica - self._first)


class Link:
    """Sends one thing after the other, at `bandwidth` bytes a second."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._free_at = 0.0

    def send(self, num_bytes: int, now: float) -> float:
        """When what is handed over now will have arrived."""
        self._free_at = max(self._free_at, now) + num_bytes / self._bandwidth
        return self._free_at
