"""A client in a process of its own, for `pagoda bench calibrate`: streams completions and notes when their tokens come.

    python -m pagoda.cli.streaming_client HOST PORT

For each line {"concurrency": …, "requests": [[prompt token ids, max_tokens], …]} on stdin one line on stdout: for each request
the seconds (sent, first token, end) of one clock; or {"error": …}. It takes next to no CPU, as it shares the machine.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import Any

FIRST_BYTES = 400  # of an answer, to say what it was instead of a completion


async def run(host: str, port: int, requests: list[tuple[list[int], int]], concurrency: int) -> list[list[float]]:
    """Stream every request, so many at once. Raises RuntimeError for an answer that is not whole."""
    places = asyncio.Semaphore(concurrency)
    messages = [_message(host, port, *request) for request in requests]

    async def one(message: bytes) -> list[float]:
        async with places:
            return await _stream(host, port, message)

    return list(await asyncio.gather(*map(one, messages)))


def _message(host: str, port: int, prompt: list[int], max_tokens: int) -> bytes:
    body = json.dumps(
        {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class _Exchange(asyncio.Protocol):
    """One connection, one request. A protocol and not a stream: what comes costs next to nothing until it is over."""

    def __init__(self, message: bytes) -> None:
        self.sent = 0.0
        self.arrivals: list[float] = []
        self.received: list[bytes] = []
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._message = message

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.sent = time.perf_counter()
        transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        self.arrivals.append(time.perf_counter())
        self.received.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)


async def _stream(host: str, port: int, message: bytes) -> list[float]:
    exchange = _Exchange(message)
    await asyncio.get_running_loop().create_connection(lambda: exchange, host, port)
    await exchange.closed
    answer = b"".join(exchange.received)
    if not answer.startswith(b"HTTP/1.1 200 ") or b"[DONE]" not in answer[-64:]:
        raise RuntimeError(f"the server answered {answer[:FIRST_BYTES]!r}")
    return [exchange.sent, exchange.arrivals[first_event(exchange.received)], exchange.arrivals[-1]]


def first_event(received: list[bytes]) -> int:
    """Which piece ends the first event: the answer's head may come with it or ahead of it."""
    so_far = b""
    for number, data in enumerate(received):
        so_far += data
        if b"\n\n" in so_far.partition(b"\r\n\r\n")[2]:
            return number
    return len(received) - 1


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this process, and ends it
    host, port = sys.argv[1], int(sys.argv[2])
    for line in sys.stdin:
        load: dict[str, Any] = json.loads(line)
        answer: Any
        try:
            answer = asyncio.run(run(host, port, load["requests"], load["concurrency"]))
        except (OSError, RuntimeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
