"""EngineThread: runs an EngineCore in a thread of its own. Asleep while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from pagoda.core.step import TokenEvent
from pagoda.engine.core import EngineCore
from pagoda.engine.messages import Message
from pagoda.telemetry.threads import name_in_system

EventSink = Callable[[Sequence[TokenEvent]], None]


class EngineThread:
    """The thread owns the core; others reach it only through `send`.

    sink: called in the engine's thread with each step's events; it must not block.
    on_failure: called once, in the engine's thread, if the loop itself fails.
    stats: as of the last turn.
    """

    def __init__(self, core: EngineCore, sink: EventSink, on_failure: Callable[[BaseException], None]) -> None:
        self._core = core
        self._sink = sink
        self._on_failure = on_failure
        self._inbox: deque[Message] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self.stats = core.stats()
        self._thread = threading.Thread(target=self._run, name="pagoda-engine", daemon=True)
        self._thread.start()

    def send(self, *messages: Message) -> None:
        with self._wake:
            self._inbox.extend(messages)
            self._wake.notify()

    def close(self) -> None:
        """Stop after the turn under way and release the device. What is open then gets no further event."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        # A forgotten LLM can be closed by the garbage collector, which runs in any thread, this one too.
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        name_in_system()
        try:
            while (messages := self._next_messages()) is not None:
                events = self._core.turn(messages)
                self.stats = self._core.stats()
                if events:
                    self._sink(events)
                if not self._core.check():
                    self.stats = self._core.stats()
        except BaseException as error:  # the loop's own defect: every waiting caller must hear of it
            self._on_failure(error)
        finally:
            self._core.close()

    def _next_messages(self) -> list[Message] | None:
        """What arrived, once there is anything to do; None when it is time to stop."""
        with self._wake:
            while not (self._inbox or self._closing or self._core.has_work):
                self._wake.wait()
            if self._closing:
                return None
            messages = list(self._inbox)
            self._inbox.clear()
            if not self.stats.has_work:  # it starts working now: a turn is due from here on
                self.stats = replace(self.stats, turn_time=time.monotonic(), has_work=True)
            return messages
