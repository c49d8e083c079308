"""WaitingQueue: the requests that are not running, most urgent first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from pagoda.core.request import Request, Status


class WaitingQueue:
    """A heap by `Request.order`. Requests that end while they wait leave it later, when they surface or outnumber the rest."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, ...], Request]] = []
        self._num_gone = 0

    def __len__(self) -> int:
        return len(self._heap) - self._num_gone

    def __iter__(self) -> Iterator[Request]:
        """Those that wait, in no particular order."""
        return (request for _, request in self._heap if request.status is Status.WAITING)

    def push(self, request: Request) -> None:
        heapq.heappush(self._heap, (request.order, request))

    def peek(self) -> Request | None:
        """The most urgent request, which stays in the queue; None when there is none."""
        heap = self._heap
        while heap and heap[0][1].status is not Status.WAITING:
            heapq.heappop(heap)
            self._num_gone -= 1
        return heap[0][1] if heap else None

    def pop(self) -> Request:
        """Take out what `peek` has just returned."""
        return heapq.heappop(self._heap)[1]

    def forget(self, request: Request) -> None:
        """A request of the queue has just ended (its status says so). O(1), spread over all calls."""
        self._num_gone += 1
        if 2 * self._num_gone > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1].status is Status.WAITING]
            heapq.heapify(self._heap)
            self._num_gone = 0
