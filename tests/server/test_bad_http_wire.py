"""Foreign hosts, wrong methods, half requests and plain garbage, while eight good streams go on unharmed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.server.good_streams import GoodStreams
from tests.server.process import RunningServer
from tests.server.wire import connect, exchange, post

BODY = b'{"prompt": "Hi", "max_tokens": 2}'
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def good(server: RunningServer) -> Iterator[GoodStreams]:
    with GoodStreams(server) as good:
        yield good


def get(path: str, host: str, *more: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *more]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example/localhost",
        "localhost@evil.example",
        "192.168.0.1",
        "0.0.0.0",
        "127.0.0.1evil",
        "[::1].evil.example",
        "localhost, evil.example",
        "",
    ],
)
def test_a_foreign_host_is_refused(server: RunningServer, good: GoodStreams, host: str) -> None:
    for request in (
        post(server.url, COMPLETIONS, BODY, host=host),
        get("/v1/models", host),
        get("/metrics", host),
        get("/openapi.json", host),
    ):
        answer = exchange(server.url, request)
        assert 400 <= answer.status < 500
        assert "access-control-allow-origin" not in answer.headers
    good.check()


def test_two_hosts_are_refused(server: RunningServer, good: GoodStreams) -> None:
    request = get("/v1/models", urlsplit(server.url).netloc, "Host: evil.example")
    assert 400 <= exchange(server.url, request).status < 500
    good.check()


def test_an_absolute_target_does_not_get_past_the_host(server: RunningServer, good: GoodStreams) -> None:
    request = get("http://evil.example/v1/models", "evil.example")
    assert 400 <= exchange(server.url, request).status < 500
    good.check()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]", "[::1]:8000"])
def test_names_of_loopback_are_served(server: RunningServer, good: GoodStreams, host: str) -> None:
    assert exchange(server.url, get("/v1/models", host)).status == 200
    good.check()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", COMPLETIONS, 405),
        ("PUT", COMPLETIONS, 405),
        ("DELETE", "/v1/models", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("BREW", "/v1/chat/completions", 405),
        ("GET", "/v1/no_such_route", 404),
        ("GET", "/v1", 404),
        ("GET", "/", 404),
        ("GET", "/v1/models/no/such/model", 404),
        ("GET", "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
        ("GET", "/../../../etc/passwd", 404),
        ("GET", "/v1/models/%ff%00", 404),
        ("GET", "/" + "a" * 20_000, 404),
    ],
)
def test_a_wrong_method_or_path(server: RunningServer, good: GoodStreams, method: str, path: str, status: int) -> None:
    answer = exchange(server.url, get(path, "localhost", method=method))
    assert answer.status == status, answer
    assert answer.error["type"] in {"invalid_request_error", "not_found_error"}
    good.check()


GARBAGE = {
    "noise": np.random.default_rng(0).bytes(100_000),
    "zeros": b"\0" * 10_000,
    "a line without an end": b"A" * 200_000,
    "lines": b"hello\r\n\r\n" * 1_000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 508,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /v1/models\r\n\r\n",
    "headers too large": get("/v1/models", "localhost", "X-Large: " + "x" * 200_000),
    "too many headers": get("/v1/models", "localhost", *(f"X-{number}: {'x' * 50}" for number in range(5_000))),
    "a header without a name": get("/v1/models", "localhost", ": x"),
    "a folded header": get("/v1/models", "localhost", "no colon here"),
    "a negative length": post("http://localhost", COMPLETIONS, BODY, ("Content-Length", "-1")),
    "a length in words": post("http://localhost", COMPLETIONS, BODY, ("Content-Length", "three")),
    "a length beyond belief": post("http://localhost", COMPLETIONS, BODY, ("Content-Length", "9" * 400)),
    "two lengths": post("http://localhost", COMPLETIONS, BODY, ("Content-Length", "33"), ("Content-Length", "5")),
    "a chunk of no size": post("http://localhost", COMPLETIONS, b"xyz\r\n", ("Transfer-Encoding", "chunked")),
    "a chunk beyond belief": post(
        "http://localhost", COMPLETIONS, b"f" * 30 + b"\r\n", ("Transfer-Encoding", "chunked")
    ),
    "an unknown transfer encoding": post("http://localhost", COMPLETIONS, BODY, ("Transfer-Encoding", "gzip")),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_or_cut_off(server: RunningServer, good: GoodStreams, name: str) -> None:
    answer = exchange(server.url, GARBAGE[name])
    assert answer.status == 0 or 400 <= answer.status < 500, answer
    good.check()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_half_a_request(server: RunningServer, good: GoodStreams, share: float) -> None:
    whole = post(server.url, COMPLETIONS, BODY)
    with connect(server.url) as connection:
        connection.sendall(whole[: int(len(whole) * share) - 1])
    good.check()
    answer = exchange(server.url, whole[: int(len(whole) * share) - 1], half=True)
    assert answer.status == 0 or 400 <= answer.status < 500, answer
    good.check()


def test_two_requests_in_one_breath_are_answered_in_order(server: RunningServer, good: GoodStreams) -> None:
    first = get("/v1/models", "localhost").replace(b"Connection: close\r\n", b"")
    with connect(server.url) as connection:
        connection.sendall(first + get("/v1/no_such_route", "localhost"))
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
    assert re.findall(rb"HTTP/1.1 ([0-9]+)", received) == [b"200", b"404"]
    good.check()


def test_hundreds_of_silent_connections_hold_nobody_up(server: RunningServer, good: GoodStreams) -> None:
    silent = [connect(server.url) for _ in range(200)]
    try:
        for connection in silent:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        assert exchange(server.url, get("/v1/models", "localhost")).status == 200
        good.check()
    finally:
        for connection in silent:
            connection.close()
