"""One connection: half a request is not waited for for ever. Driven by hand: a transport that only takes notes, no clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pagoda.server import protocol as module
from pagoda.server.protocol import Protocol

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed, self.written = False, b""

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def connected() -> tuple[Protocol, Transport]:
    protocol = Protocol(uvicorn.Config(app, log_config=None), ServerState(), {}, asyncio.get_running_loop())
    transport = Transport()
    protocol.connection_made(transport)
    return protocol, transport


def closed_after(*pieces: bytes, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a connection that brings these pieces is closed as soon as its time for a head is up."""
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.0)

    async def connect() -> bool:
        protocol, transport = connected()
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)  # what is sent whole is answered
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closed = transport.closed
        protocol.connection_lost(None)
        return closed

    return asyncio.run(connect())


def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert closed_after(monkeypatch=monkeypatch)


def test_half_a_head_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert closed_after(REQUEST[:-2], monkeypatch=monkeypatch)
    assert closed_after(REQUEST, REQUEST[:5], monkeypatch=monkeypatch)


def test_whole_requests_keep_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not closed_after(REQUEST, monkeypatch=monkeypatch)
    assert not closed_after(REQUEST, REQUEST, monkeypatch=monkeypatch)


def test_a_request_under_way_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not closed_after(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1", monkeypatch=monkeypatch
    )


@pytest.mark.parametrize("reads_on", [False, True])
def test_a_client_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch, reads_on: bool) -> None:
    monkeypatch.setattr(module, "STALLED_SECONDS", 0.0)

    async def stall() -> bool:
        protocol, transport = connected()
        protocol.pause_writing()
        if reads_on:
            protocol.resume_writing()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closed = transport.closed
        protocol.connection_lost(None)
        return closed

    assert asyncio.run(stall()) is not reads_on
