"""An engine whose steps happen only when a test allows them, and a client of an ASGI application that leaves on command."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pagoda.core.step import RunnerOutput, SchedulerOutput
from pagoda.engine.core import EngineCore
from pagoda.engine.stats import EngineStats
from pagoda.llm import AsyncLLM

Application = Callable[..., Awaitable[None]]
PATIENCE = 60.0  # seconds after which a test that hangs fails; none waits so long otherwise


class Gate:
    """A runner in front of the real one: it holds each step until it is allowed.

    steps: for each step started, the ids of the requests that computed in it.
    """

    def __init__(self, llm: AsyncLLM) -> None:
        self._core: EngineCore = llm._engine.client._engine._core
        self._inner, self._core._runner = self._core._runner, self
        self._permits, self._held = threading.Semaphore(0), threading.Semaphore(0)
        self.steps: list[list[str]] = []

    def submit(self, step: SchedulerOutput) -> None:
        self.steps.append([row.key.request_id for row in step.rows])
        self._inner.submit(step)

    def collect(self) -> RunnerOutput:
        self._held.release()
        self._permits.acquire()
        return self._inner.collect()

    def close(self) -> None:
        self._inner.close()

    @property
    def stats(self) -> EngineStats:
        """The engine's state at this moment, while a step is held; what it publishes is as of the step before."""
        return self._core.stats()

    async def holds(self) -> None:
        """Wait until the engine has come to a step that it may not finish yet."""
        assert await asyncio.to_thread(self._held.acquire, timeout=PATIENCE)

    def allow(self, steps: int = 10_000) -> None:
        """Let so many steps pass: by default all that a test could need."""
        self._permits.release(steps)


def let_go(llm: AsyncLLM) -> None:
    """Open the gate, if there is one, so that the engine can be closed whatever became of the test."""
    runner = llm._engine.client._engine._core._runner
    if isinstance(runner, Gate):
        runner.allow()


class Aborts:
    """Counts the aborts that reach the engine's inbox."""

    def __init__(self, llm: AsyncLLM) -> None:
        client = llm._engine.client
        self._abort, self._count = client.abort, threading.Semaphore(0)
        client.abort = self._counted  # type: ignore[method-assign]

    def _counted(self, request_id: str) -> None:
        self._abort(request_id)
        self._count.release()

    async def seen(self, count: int = 1) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._count.acquire, timeout=PATIENCE), "no abort came"


class AsgiClient:
    """One POST of JSON to an application in this loop; the connection stays open until `leave`.

    status: of the response. chunks: its body as it comes. blocked: while set, the client reads nothing, as the
    application notices by `send` not returning.
    """

    def __init__(
        self, app: Application, path: str, body: Any, *, spec_version: str = "2.3", complete: bool = True
    ) -> None:
        self._body, self._complete = json.dumps(body).encode(), complete
        self._spec_version = spec_version
        self._left, self._arrived = asyncio.Event(), asyncio.Condition()
        self._reading = asyncio.Event()
        self._reading.set()
        self._given = False
        self.status: int | None = None
        self.chunks: list[bytes] = []
        self.task = asyncio.create_task(app(self._scope(path), self._receive, self._send))  # type: ignore[arg-type]

    def leave(self) -> None:
        self._left.set()

    def stop_reading(self) -> None:
        self._reading.clear()

    def read_again(self) -> None:
        self._reading.set()

    async def has_chunks(self, count: int) -> None:
        async def enough() -> None:
            async with self._arrived:
                await self._arrived.wait_for(lambda: len(self.chunks) >= count)

        await asyncio.wait_for(enough(), PATIENCE)

    async def finished(self) -> None:
        """Wait until the application is done with this exchange."""
        try:
            await asyncio.wait_for(self.task, PATIENCE)
        except OSError:  # its own, come back through the application
            assert self._left.is_set()

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode()

    def _scope(self, path: str) -> dict[str, Any]:
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self._body)).encode()),
        ]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": self._spec_version},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 80),
        }

    async def _receive(self) -> dict[str, Any]:
        if not self._given:
            self._given = True
            body = self._body if self._complete else self._body[:-1]
            return {"type": "http.request", "body": body, "more_body": not self._complete}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self._left.is_set() and self._spec_version >= "2.4":  # from there on a server says so by raising
            raise OSError("the client has left")
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message.get("body"):
            async with self._arrived:
                self.chunks.append(message["body"])
                self._arrived.notify_all()
        await self._reading.wait()
