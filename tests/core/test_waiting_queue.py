from __future__ import annotations

from pagoda.core.request import Request, Status
from pagoda.core.waiting_queue import WaitingQueue
from tests.core.driver import make_request


def queue_of(count: int) -> tuple[WaitingQueue, list[Request]]:
    queue, requests = WaitingQueue(), [make_request(str(number)) for number in range(count)]
    for number, request in reversed(list(enumerate(requests))):
        request.order = (0.0, number)
        queue.push(request)
    return queue, requests


def end(queue: WaitingQueue, request: Request) -> None:
    request.status = Status.FINISHED
    queue.forget(request)


def test_the_most_urgent_comes_first() -> None:
    queue, requests = queue_of(5)
    assert len(queue) == 5
    for request in requests:
        assert queue.peek() is request
        assert queue.pop() is request
    assert queue.peek() is None
    assert len(queue) == 0


def test_one_that_has_ended_is_passed_over() -> None:
    queue, requests = queue_of(5)
    for index in (0, 2):
        end(queue, requests[index])
    assert len(queue) == 3
    assert set(queue) == {requests[1], requests[3], requests[4]}
    assert [queue.peek() and queue.pop() for _ in range(3)] == [requests[1], requests[3], requests[4]]
    assert queue.peek() is None


def test_what_has_ended_does_not_pile_up() -> None:
    queue, requests = queue_of(1)
    for number in range(1000):
        request = make_request("other")
        request.order = (1.0, number)
        queue.push(request)
        end(queue, request)
        assert len(queue._heap) <= 2
    assert queue.pop() is requests[0]
