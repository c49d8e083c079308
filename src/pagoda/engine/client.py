"""EngineClient: how a front end talks to the engine. Text is made here, in a thread of its own, not in the engine's."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
from pagoda.errors import EngineClosedError, PagodaError, QueueFullError, RequestFailedError
from pagoda.telemetry.threads import name_in_system
from pagoda.text.tokenizer import Tokenizer


class Listener(Protocol):
    """Who waits for one request. Called in the client's output thread; must not block. `on_finished` is always called once."""

    def on_delta(self, delta: CompletionDelta) -> None: ...

    def on_finished(self, output: RequestOutput) -> None: ...


class EngineClient:
    """Submits requests and routes what comes back. Safe to use from any thread.

    max_open: how many requests may be unfinished at once; one more is refused.
    """

    def __init__(self, core: EngineCore, tokenizer: Tokenizer, max_open: int) -> None:
        self._tokenizer = tokenizer
        self._max_open = max_open
        self._open: dict[str, tuple[RequestAssembler, Listener]] = {}
        self._room = threading.Condition()
        self._closed: PagodaError | None = None
        self._events: SimpleQueue[Sequence[TokenEvent] | BaseException | None] = SimpleQueue()
        self._output_thread = threading.Thread(target=self._deliver_all, name="pagoda-output", daemon=True)
        self._output_thread.start()
        self._engine = EngineThread(core, self._events.put, self._events.put)

    def submit(self, admitted: Admitted, listener: Listener, wait: bool = False) -> None:
        """Start a request. With `wait`, blocks until there is room for it.

        Raises `QueueFullError` where there is none, `EngineClosedError` after `close` or a failure of the engine.
        """
        assembler = RequestAssembler(admitted, self._tokenizer)
        with self._room:
            while wait and self._closed is None and len(self._open) >= self._max_open:
                self._room.wait()
            if self._closed is not None:
                raise self._closed
            if len(self._open) >= self._max_open:
                raise QueueFullError(len(self._open), self._max_open)
            self._open[admitted.submit.request_id] = (assembler, listener)
        self._engine.send(admitted.submit)

    def abort(self, request_id: str) -> None:
        """End a request now; its listener gets what there is, with finish_reason "abort". Unknown ones are ignored."""
        self._engine.send(Abort(request_id))

    @property
    def num_open(self) -> int:
        return len(self._open)

    @property
    def output_thread_id(self) -> int | None:
        """The operating system's number of the thread that makes text, for whoever sets its priority."""
        return self._output_thread.native_id

    @property
    def stats(self) -> EngineStats:
        """The engine as of its last turn."""
        return self._engine.stats

    @property
    def closed(self) -> PagodaError | None:
        """Why nothing can be submitted any more, if that is so."""
        return self._closed

    def close(self) -> None:
        """End every request and both threads. May be called twice."""
        with self._room:
            self._closed = self._closed or EngineClosedError("the engine was closed")
            self._room.notify_all()
        self._engine.close()
        self._events.put(None)
        self._output_thread.join()

    def _deliver_all(self) -> None:
        name_in_system()
        while (events := self._events.get()) is not None:
            if isinstance(events, BaseException):
                self._fail_all(EngineClosedError(f"the engine failed: {type(events).__name__}: {events}"))
                continue
            for event in events:
                self._deliver(event)
        self._fail_all(EngineClosedError("the engine was closed"))

    def _deliver(self, event: TokenEvent) -> None:
        entry = self._open.get(event.key.request_id)
        if entry is None:
            return
        assembler, listener = entry
        try:
            delta = assembler.take(event)
        except Exception as error:  # a defect while making text ends this request, not its neighbours
            self._engine.send(Abort(event.key.request_id))
            assembler.fail(RequestFailedError(f"its text could not be made: {type(error).__name__}: {error}"))
            delta = None
        if delta is not None:
            if delta.finish_reason is not None and event.finish_reason is None:  # a stop string: the engine cannot know
                self._engine.send(Abort(event.key.request_id, event.key.choice))
            listener.on_delta(delta)
        if assembler.finished:
            self._forget(event.key.request_id)
            listener.on_finished(assembler.output)

    def _forget(self, request_id: str) -> None:
        with self._room:
            del self._open[request_id]
            self._room.notify()

    def _fail_all(self, error: PagodaError) -> None:
        with self._room:
            self._closed = self._closed or error
            entries = list(self._open.values())
            self._open.clear()
            self._room.notify_all()
        for assembler, listener in entries:
            assembler.fail(error)
            listener.on_finished(assembler.output)
