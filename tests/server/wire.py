"""HTTP by hand, byte by byte: for what no ordinary client would send."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE = 60.0  # seconds after which a test that hangs fails; none waits so long otherwise


class Answer(NamedTuple):
    """status: 0 where the server closed the connection without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object, which every refusal with a body has, and nothing beside it."""
        decoded = json.loads(self.body)
        assert list(decoded) == ["error"]
        assert set(decoded["error"]) == {"message", "type", "param", "code"}
        error: dict[str, Any] = decoded["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        assert "\n" not in error["message"]
        assert len(error["message"]) < 1000
        return error


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=PATIENCE)


def exchange(url: str, *pieces: bytes, half: bool = False) -> Answer:
    """Send the bytes, then read the answer. half: say that nothing more will come, as a client that died does."""
    with connect(url) as connection:
        with suppress(ConnectionError):  # refused before all was sent
            for piece in pieces:
                connection.sendall(piece)
            if half:
                connection.shutdown(socket.SHUT_WR)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> Answer:
    """One answer: as long as its Content-Length says, or else all there is until the server closes."""
    received = b""
    with suppress(ConnectionError):
        while not _complete(received) and (piece := connection.recv(1 << 16)):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    if not head:
        return Answer(0, {}, b"")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, body)


def _complete(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: ([0-9]+)", head, re.IGNORECASE)
    return bool(end) and length is not None and len(body) >= int(length[1])


def post(
    url: str,
    path: str,
    body: bytes,
    *headers: tuple[str, str],
    content_type: str | None = "application/json",
    host: str | None = None,
) -> bytes:
    """The bytes of one POST after which the server is to close the connection."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {urlsplit(url).netloc if host is None else host}", "Connection: close"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    names = {name.lower() for name, _ in headers}
    if not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
