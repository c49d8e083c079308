"""Mailbox: from the engine's output thread into the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

logger = logging.getLogger(__name__)


class Mailbox:
    """Carries calls from other threads into the event loop, which is woken once for all that a turn of the engine brings."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: list[Callable[[], object]] = []
        self._calls: deque[Callable[[], object]] = deque()
        self._on_its_way = False

    def open(self) -> None:
        """Deliver to the running loop from now on; there is one at a time."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._on_its_way = loop, False
            self._calls.clear()

    def post(self, call: Callable[[], object]) -> None:
        """In the output thread: to be done in the loop when the turn ends."""
        self._turn.append(call)

    def end_turn(self) -> None:
        """In the output thread."""
        turn, self._turn = self._turn, []
        if turn:
            self.send(turn)

    def send(self, calls: Sequence[Callable[[], object]]) -> None:
        """In any thread: to be done in the loop, in this order."""
        self._calls.extend(calls)
        if self._on_its_way or self._loop is None:
            return
        self._on_its_way = True
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Cleared first: whoever sends from here on either is seen below or wakes the loop again.
        self._on_its_way = False
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception:  # one request's defect; the others' news must not wait behind it
                logger.exception("news of a request could not be taken in")
