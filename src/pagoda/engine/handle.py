"""Waiting for a request: `RequestHandle` from ordinary code, `AsyncHandle` from asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from queue import SimpleQueue

from pagoda.engine.outputs import CompletionDelta, RequestOutput


class ResultListener:
    """Who wants only the whole: `on_result` is called with it, in the client's output thread."""

    def __init__(self, on_result: Callable[[RequestOutput], None]) -> None:
        self._on_result = on_result

    def on_delta(self, delta: CompletionDelta) -> None:
        """The whole has it too."""

    def on_finished(self, output: RequestOutput) -> None:
        self._on_result(output)


class RequestHandle:
    """One request under way. Iterate for its deltas as they come, or wait for the whole with `result`.

    A failed or refused request's deltas simply end; `result().error` says why. owner: what must stay alive until then.
    """

    def __init__(self, request_id: str, abort: Callable[[str], None], owner: object = None) -> None:
        self.request_id = request_id
        self._owner = owner
        self._abort = abort
        self._deltas: SimpleQueue[CompletionDelta | None] = SimpleQueue()
        self._finished = threading.Event()
        self._output: RequestOutput | None = None

    def done(self) -> bool:
        return self._finished.is_set()

    def result(self, timeout: float | None = None) -> RequestOutput:
        """Wait for the end. Raises TimeoutError after `timeout` seconds; the request goes on then."""
        if not self._finished.wait(timeout) or self._output is None:
            raise TimeoutError(f"request {self.request_id} did not finish within {timeout} s")
        return self._output

    def cancel(self) -> None:
        """End it now; its blocks are free within a step. `result` then has what was generated, as "abort"."""
        self._abort(self.request_id)

    def __iter__(self) -> Iterator[CompletionDelta]:
        try:
            while (delta := self._deltas.get()) is not None:
                yield delta
            self._deltas.put(None)  # whoever iterates again finds the end at once
        finally:
            if not self.done():  # the reader left early
                self.cancel()

    def on_delta(self, delta: CompletionDelta) -> None:
        self._deltas.put(delta)

    def on_finished(self, output: RequestOutput) -> None:
        self._output = output
        self._finished.set()
        self._deltas.put(None)


class AsyncHandle:
    """The same for asyncio; made and used in one event loop. Leaving the iteration or cancelling the wait aborts."""

    def __init__(self, request_id: str, abort: Callable[[str], None], owner: object = None) -> None:
        self.request_id = request_id
        self._owner = owner
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._num_waiting = 0
        self._deltas: asyncio.Queue[CompletionDelta | None] = asyncio.Queue()
        self._output: asyncio.Future[RequestOutput] = self._loop.create_future()

    async def result(self) -> RequestOutput:
        """Wait for the end."""
        self._num_waiting += 1
        try:
            return await asyncio.shield(self._output)
        finally:
            self._num_waiting -= 1
            if not self._num_waiting and not self._output.done():  # the last who waited was cancelled
                self.cancel()

    def cancel(self) -> None:
        self._abort(self.request_id)

    async def __aiter__(self) -> AsyncIterator[CompletionDelta]:
        try:
            while (delta := await self._deltas.get()) is not None:
                yield delta
            self._deltas.put_nowait(None)  # whoever iterates again finds the end at once
        finally:
            if not self._output.done():
                self.cancel()

    def on_delta(self, delta: CompletionDelta) -> None:
        self._in_loop(self._deltas.put_nowait, delta)

    def on_finished(self, output: RequestOutput) -> None:
        self._in_loop(self._finish, output)

    def _finish(self, output: RequestOutput) -> None:
        if not self._output.done():
            self._output.set_result(output)
        self._deltas.put_nowait(None)

    def _in_loop(self, call: Callable[..., object], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:  # the loop was closed: nobody waits any more
            self.cancel()
