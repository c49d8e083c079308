"""Server-sent events: a generation as it goes, several events in one write, an error as an event of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagoda.engine.outputs import CompletionDelta
from pagoda.errors import PagodaError
from pagoda.server.connection import ClientLeftError, while_connected
from pagoda.server.errors import HttpError, as_http_error, error_body
from pagoda.server.generation import Generation

DONE = b"data: [DONE]\n\n"
logger = logging.getLogger(__name__)


class Dialect(Protocol):
    """How a generation is told: the bodies of the events."""

    def chunks(self, arrived: Sequence[tuple[int, CompletionDelta]]) -> list[dict[str, Any]]:
        """The events for what has just come; none where there is nothing to show yet."""
        ...

    def last(self) -> list[dict[str, Any]]:
        """The events after the end."""
        ...


class EventStream(Response):
    """Sends what has come in one write, and reads on when it has gone out: a slow reader gets fewer, larger writes.

    It ends with `data: [DONE]`, after an error too. When the client leaves, its requests end at once.
    """

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, dialect: Dialect) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._generation, self._dialect = generation, dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._generation:
            try:
                await while_connected(receive, self._write(send))
            except (ClientLeftError, OSError):  # some servers tell of it by raising from `send`
                return

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for arrived in self._generation.arrivals():
                data = b"".join(map(encoded, self._dialect.chunks(arrived)))
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            rest = self._dialect.last()
        except PagodaError as error:
            rest = [error_body(as_http_error(error))]
        except OSError:
            raise
        except Exception:  # the status is sent already, so the client can be told only here
            logger.exception("a stream failed")
            rest = [error_body(HttpError(500, "the server failed while it streamed", code="internal_error"))]
        await send({"type": "http.response.body", "body": b"".join(map(encoded, rest)) + DONE, "more_body": False})


def encoded(body: dict[str, Any]) -> bytes:
    return b"data: " + json_bytes(body) + b"\n\n"


def json_bytes(body: object) -> bytes:
    # A client's own words in an error message may have lone surrogates, which UTF-8 has not.
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
