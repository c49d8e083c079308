"""EngineClient: how a front end talks to the engine. Text is made here, in a thread of its own, not in the engine's."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol

from pagoda.core.step import TokenEvent
from pagoda.engine.admission import Admitted
from pagoda.engine.assembly import RequestAssembler
from pagoda.engine.core import EngineCore
from pagoda.engine.messages import Abort
from pagoda.engine.outputs import CompletionDelta, RequestOutput
from pagoda.engine.stats import EngineStats
from pagoda.engine.thread import EngineThread
from pagoda.errors import EngineClosedError, InvalidValueError, QueueFullError, RequestFailedError
from pagoda.telemetry.threads import name_in_system
from pagoda.text.tokenizer import Tokenizer


class Listener(Protocol):
    """Who waits for one request. Called in the client's output thread; must not block. `on_finished` is always called once."""

    def on_delta(self, delta: CompletionDelta) -> None: ...

    def on_finished(self, output: RequestOutput) -> None: ...


class EngineClient:
    """Submits requests and routes what comes back. Safe to use from any thread.

    max_open: how many choices may be unfinished at once, over all requests; a request that would make more is refused.
    """

    def __init__(self, core: EngineCore, tokenizer: Tokenizer, max_open: int) -> None:
        self._tokenizer = tokenizer
        self.max_open = max_open
        self.num_open = 0
        self._open: dict[str, tuple[RequestAssembler, Listener]] = {}
        self._room = threading.Condition()
        self._closed: str | None = None
        self._turn_ends: list[Callable[[], None]] = []
        self._process_id = os.getpid()
        self._events: SimpleQueue[Sequence[TokenEvent] | BaseException | None] = SimpleQueue()
        self._output_thread = threading.Thread(target=self._deliver_all, name="pagoda-output", daemon=True)
        self._output_thread.start()
        self._engine = EngineThread(core, self._events.put, self._events.put)

    def submit(self, admitted: Admitted, listener: Listener, wait: bool = False) -> None:
        """Start a request; as `submit_all` of one."""
        self.submit_all([(admitted, listener)], wait)

    def submit_all(self, requests: Sequence[tuple[Admitted, Listener]], wait: bool = False) -> None:
        """Start several requests, all of them or none. With `wait`, blocks until there is room.

        Raises `QueueFullError` where there is none now, `InvalidValueError` where there never is and for the id of a
        request that is open, `EngineClosedError` after `close` or a failure of the engine.
        """
        size = sum(admitted.submit.sampling.n for admitted, _ in requests)
        if size > self.max_open:
            limit = f"at most {self.max_open:,} choices in all, as many as may run and wait"
            raise InvalidValueError("n" if len(requests) == 1 else "prompt", size, limit)
        assemblers = [RequestAssembler(admitted, self._tokenizer) for admitted, _ in requests]
        with self._room:
            while wait and self._closed is None and self.num_open + size > self.max_open:
                self._room.wait()
            if self._closed is not None:
                raise EngineClosedError(self._closed)
            if self._process_id != os.getpid():
                raise EngineClosedError("the engine runs in the parent process; load the model in this one")
            if self.num_open + size > self.max_open:
                raise QueueFullError(self.num_open, self.max_open)
            for admitted, _ in requests:
                if admitted.submit.request_id in self._open:
                    raise InvalidValueError(
                        "request_id", admitted.submit.request_id, "one that is not under way already"
                    )
            for (admitted, listener), assembler in zip(requests, assemblers, strict=True):
                self._open[admitted.submit.request_id] = (assembler, listener)
            self.num_open += size
        self._engine.send(*(admitted.submit for admitted, _ in requests))

    def abort(self, request_id: str) -> None:
        """End a request now; its listener gets what there is, with finish_reason "abort". Unknown ones are ignored."""
        self._engine.send(Abort(request_id))

    @property
    def output_thread_id(self) -> int | None:
        """The operating system's number of the thread that makes text, for whoever sets its priority."""
        return self._output_thread.native_id

    @property
    def stats(self) -> EngineStats:
        """The engine as of its last turn."""
        return self._engine.stats

    @property
    def closed(self) -> str | None:
        """Why nothing can be submitted any more, if that is so."""
        return self._closed

    def close(self) -> None:
        """End every request, with `EngineClosedError`, and both threads. May be called twice."""
        with self._room:
            self._closed = self._closed or "the engine was closed"
            self._room.notify_all()
        self._engine.close()
        self._events.put(None)
        if self._output_thread is not threading.current_thread():
            self._output_thread.join()

    def after_turn(self, call: Callable[[], None]) -> None:
        """From now on, call this in the output thread when all that a turn of the engine brought has been delivered: whoever
        hands it on to another thread need not wake that once a token. It must neither block nor raise."""
        self._turn_ends.append(call)

    def _deliver_all(self) -> None:
        name_in_system()
        while (events := self._events.get()) is not None:
            if isinstance(events, BaseException):
                self._fail_all(f"the engine failed: {type(events).__name__}: {events}")
            else:
                for event in events:
                    self._deliver(event)
            self._end_turn()
        self._fail_all("the engine was closed")
        self._end_turn()

    def _end_turn(self) -> None:
        for call in self._turn_ends:
            call()

    def _deliver(self, event: TokenEvent) -> None:
        request_id = event.key.request_id
        entry = self._open.get(request_id)
        if entry is None:
            return
        assembler, listener = entry
        try:
            delta = assembler.take(event)
            if delta is not None:
                if delta.finish_reason is not None and event.finish_reason is None:
                    # A stop string, of which the engine knows nothing.
                    self._engine.send(Abort(request_id, event.key.choice))
                listener.on_delta(delta)
        except Exception as error:  # a defect here, or in who listens, ends this request and not its neighbours
            self._engine.send(Abort(request_id))
            assembler.fail(RequestFailedError(f"its text could not be delivered: {type(error).__name__}: {error}"))
        if assembler.finished:
            self._forget(request_id)
            _finish(listener, assembler)

    def _forget(self, request_id: str) -> None:
        with self._room:
            assembler, _ = self._open.pop(request_id)
            self.num_open -= assembler.num_choices
            self._room.notify_all()

    def _fail_all(self, reason: str) -> None:
        with self._room:
            self._closed = self._closed or reason
            entries = list(self._open.values())
            self._open.clear()
            self.num_open = 0
            self._room.notify_all()
        for assembler, listener in entries:
            assembler.fail(EngineClosedError(reason))
            _finish(listener, assembler)


def _finish(listener: Listener, assembler: RequestAssembler) -> None:
    # Whoever listens badly harms himself only; there is nobody left to tell.
    with contextlib.suppress(Exception):
        listener.on_finished(assembler.output)
