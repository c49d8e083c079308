"""HTTP/1.1 on one connection: uvicorn's, which waits for ever, and answers what is no HTTP with plain text."""

from __future__ import annotations

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pagoda.server.errors import HttpError, error_body

# How long a client may take for the head of a request, from connecting or from the head's first byte.
HEAD_SECONDS = 20.0
# How long a client may read nothing of what waits for it. It would hold its answer in memory, and put off the server's end.
STALLED_SECONDS = 120.0


class Protocol(H11Protocol):
    """Refuses, in OpenAI's form, what h11 refuses: broken request lines, headers and chunks, too many headers, no Host."""

    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget_head()
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget_stall()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._forget_stall()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is under way already
            sentence = "the request is no valid HTTP/1.1, must have one Host, and well-formed headers and chunks"
            body = json.dumps(error_body(HttpError(400, sentence, code="invalid_http"))).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
