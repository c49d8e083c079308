"""A client that takes next to no CPU, as it shares the machine with the server: it notes what came when, and reads it later."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from serving.load import Request, Timeline


async def run(
    url: str, model: str, requests: list[Request], concurrency: int, on_data: Callable[[], None]
) -> list[Timeline]:
    """Stream every request, so many at once. Raises RuntimeError for an answer that is not the whole that was asked."""
    places = asyncio.Semaphore(concurrency)
    bodies = [_body(model, request) for request in requests]

    async def one(body: bytes) -> _Exchange:
        async with places:
            return await _exchange(url, body, on_data)

    exchanges = await asyncio.gather(*map(one, bodies))
    return [_timeline(exchange, request) for exchange, request in zip(exchanges, requests, strict=True)]


async def run_at(
    url: str, model: str, requests: list[Request], times: list[float], on_data: Callable[[], None]
) -> list[Timeline]:
    """Stream every request, each sent at its time (seconds from now), whatever became of those before. Raises as `run`."""
    bodies = [_body(model, request) for request in requests]
    started = time.perf_counter()

    async def one(body: bytes, at: float) -> _Exchange:
        await asyncio.sleep(started + at - time.perf_counter())
        return await _exchange(url, body, on_data)

    exchanges = await asyncio.gather(*map(one, bodies, times))
    return [_timeline(exchange, request) for exchange, request in zip(exchanges, requests, strict=True)]


class _Exchange(asyncio.Protocol):
    """One connection, one request. received: what the socket gave, and when."""

    def __init__(self, message: bytes, on_data: Callable[[], None]) -> None:
        self.received: list[tuple[float, bytes]] = []
        self.sent = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._message, self._on_data = message, on_data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.sent = time.perf_counter()
        transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        self.received.append((time.perf_counter(), data))
        self._on_data()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)


async def _exchange(url: str, body: bytes, on_data: Callable[[], None]) -> _Exchange:
    address = urlsplit(url)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    exchange = _Exchange(head.encode() + body, on_data)
    await asyncio.get_running_loop().create_connection(
        lambda: exchange, address.hostname or "localhost", address.port or 80
    )
    await exchange.closed
    return exchange


def _body(model: str, request: Request) -> bytes:
    return json.dumps(
        {
            "model": model,
            "prompt": request.prompt_token_ids,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


def _timeline(exchange: _Exchange, request: Request) -> Timeline:
    arrivals: list[float] = []
    usage: dict[str, int] = {}
    end = ""
    for when, data in _events(exchange.received):
        if data == "[DONE]":
            end = data
            continue
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise RuntimeError(f"the server answered {event['error']}")
        usage = event.get("usage") or usage
        if event["choices"]:
            arrivals.append(when)
    if end != "[DONE]" or usage.get("completion_tokens") != request.max_tokens:
        answer = b"".join(data for _, data in exchange.received)
        raise RuntimeError(f"the answer is not whole: {answer[:200]!r} … {answer[-200:]!r}")
    return Timeline(
        len(request.prompt_token_ids), request.max_tokens, exchange.sent, arrivals, exchange.received[-1][0]
    )


def _events(received: list[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """The data of each server-sent event, and when its last byte came."""
    text = b""
    for when, payload in _payloads(received):
        *events, text = (text + payload).split(b"\n\n")
        for event in events:
            yield when, event.removeprefix(b"data: ").decode()


def _payloads(received: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The body without its chunked transfer coding (RFC 9112, 7.1), in pieces."""
    buffer, in_body = b"", False
    for when, data in received:
        buffer += data
        if not in_body:
            head, found, rest = buffer.partition(b"\r\n\r\n")
            if not found:
                continue
            if not head.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"the server answered {b''.join(piece for _, piece in received)[:600]!r}")
            buffer, in_body = rest, True
        while b"\r\n" in buffer:
            size, _, rest = buffer.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                break
            yield when, rest[:length]
            buffer = rest[length + 2 :]
