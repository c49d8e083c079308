"""A client in a process of its own, for `pagoda bench calibrate`: streams completions and notes when their tokens come.

    python -m pagoda.cli.streaming_client HOST PORT

For each line {"concurrency": …, "requests": [[prompt token ids, max_tokens], …]} on stdin one line on stdout: for each request
the seconds (sent, first token, end) of one clock; or {"error": …}. It takes next to no CPU, as it shares the machine.
"""

from __future__ import annotations

import asyncio
import json
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


async def _stream(host: str, port: int, message: bytes) -> list[float]:
    reader, writer = await asyncio.open_connection(host, port)
    sent = time.perf_counter()
    writer.write(message)
    first, received, end = 0.0, b"", b""
    while data := await reader.read(1 << 16):
        if not first:
            received += data
            if b"\n\n" in received.partition(b"\r\n\r\n")[2]:
                first = time.perf_counter()
        last = time.perf_counter()
        end = (end + data)[-64:]
    writer.close()
    if not first or b"[DONE]" not in end:
        raise RuntimeError(f"the server answered {(received or end)[:FIRST_BYTES]!r}")
    return [sent, first, last]


def main() -> None:
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
