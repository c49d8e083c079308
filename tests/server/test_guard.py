"""What the guard lets in and what it refuses, in front of a few routes of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message

from pagoda.config import ServerConfig
from pagoda.errors import InvalidValueError
from pagoda.server import guard as module
from pagoda.server.guard import Guard, guarded
from pagoda.server.hosts import host_names
from tests.server.small_app import service_of, small_app

JSON = {"content-type": "application/json"}


def guard_of(config: ServerConfig | None = None, **engine: Any) -> Guard:
    service = service_of(config, **engine)
    return guarded(small_app(service), service)


def ask(
    guard: Guard,
    method: str,
    path: str,
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    content: bytes | AsyncIterator[bytes] | None = None,
    *,
    address: str = "127.0.0.1",
) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=guard)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{address}:8000") as client:
            return await client.request(method, path, headers=headers, content=content)

    return asyncio.run(send())


def message_of(response: httpx.Response) -> str:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["message"])


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost.:80", "127.0.0.1:8000", "127.255.0.9", "[::1]", "[0:0::1]:1", "localhost:8000"]
)
def test_loopback_names_are_let_in(host: str) -> None:
    assert ask(guard_of(), "GET", "/v1/models", {"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0",
     "localhost:", "localhost:x", "a@localhost", "localhost/", "[::2]", "::1", "", "[localhost]", "127.0.0.1:8000:9"],
)  # fmt: skip
def test_other_names_are_refused_naming_host_and_remedy(host: str) -> None:
    refused = ask(guard_of(), "GET", "/v1/models", {"host": host})
    assert refused.status_code == 421
    assert "Host" in message_of(refused)
    assert "--allowed-hosts" in message_of(refused)
    if host:
        assert host in message_of(refused)


def test_a_host_given_twice_is_refused() -> None:
    refused = ask(guard_of(), "GET", "/v1/models", [("host", "localhost"), ("host", "localhost")])
    assert refused.status_code == 400
    assert "got 2" in message_of(refused)


def test_a_missing_host_is_refused() -> None:
    status, _ = bare(guard_of(), [])
    assert status == 400


def test_allowed_hosts_are_let_in_and_no_others() -> None:
    guard = guard_of(ServerConfig(allowed_hosts="Box.example, 10.0.0.7,fe80::1"))
    for host in ("box.example", "box.example:9", "BOX.example.", "10.0.0.7:8000", "[fe80::1]:8000", "localhost"):
        assert ask(guard, "GET", "/v1/models", {"host": host}).status_code == 200, host
    for host in ("example", "a.box.example", "10.0.0.8", "boxxexample"):
        assert ask(guard, "GET", "/v1/models", {"host": host}).status_code == 421, host


@pytest.mark.parametrize("entry", ["*", "*.example", "box.example:8000", "http://box", "a b", "[::1", "[::1]:80"])
def test_allowed_hosts_that_are_no_names_are_refused(entry: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        host_names(f"fine.example,{entry}")
    assert refused.value.field == "allowed_hosts"
    assert repr(entry)[1:-1].strip("[]") in str(refused.value)


def test_the_connection_s_own_address_is_let_in_where_others_may_come() -> None:
    headers = {"host": "192.168.1.5:8000"}
    opened = guard_of(ServerConfig(host="0.0.0.0", allow_unauthenticated=True))
    assert ask(opened, "GET", "/v1/models", headers, address="192.168.1.5").status_code == 200
    assert ask(opened, "GET", "/v1/models", headers, address="192.168.1.6").status_code == 421
    assert ask(guard_of(), "GET", "/v1/models", headers, address="192.168.1.5").status_code == 421


def test_probes_may_come_under_any_name() -> None:
    for path in ("/health", "/ready"):
        assert ask(guard_of(), "GET", path, {"host": "10.1.2.3:8000"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost.evil.example", "file://", "", "x"]
)
def test_pages_of_other_origins_change_nothing(origin: str) -> None:
    refused = ask(guard_of(), "POST", "/echo", {**JSON, "origin": origin}, b"{}")
    assert refused.status_code == 403
    assert "Origin" in message_of(refused)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:8000", "https://box.example"])
def test_pages_of_own_names_are_let_in_but_get_no_cors_header(origin: str) -> None:
    guard = guard_of(ServerConfig(allowed_hosts="box.example"))
    answer = ask(guard, "POST", "/echo", {**JSON, "origin": origin}, b'{"a": 1}')
    assert answer.json() == {"a": 1}
    preflight = ask(guard, "OPTIONS", "/echo", {"origin": origin, "access-control-request-method": "POST"})
    assert preflight.status_code == 405
    for response in (answer, preflight):
        assert not any(name.startswith("access-control") for name in response.headers)


def test_a_body_over_the_limit_is_refused_by_its_length() -> None:
    guard = guard_of(max_body_bytes=100)
    fits = b'{"a": "' + b"x" * 91 + b'"}'
    assert len(fits) == 100
    assert ask(guard, "POST", "/echo", JSON, fits).status_code == 200
    refused = ask(guard, "POST", "/echo", JSON, fits + b" ")
    assert refused.status_code == 413
    assert refused.json()["error"]["param"] == "body"
    for part in ("101", "100", "--max-body-bytes"):
        assert part in message_of(refused)


def test_a_body_over_the_limit_is_refused_while_it_comes() -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b" " * 10

    guard = guard_of(max_body_bytes=100)
    refused = ask(guard, "POST", "/echo", JSON, pieces(11))
    assert refused.status_code == 413
    assert "100" in message_of(refused)
    assert ask(guard, "POST", "/echo", JSON, pieces(10)).status_code == 400  # it fits, and is no JSON


def test_no_more_than_the_limit_and_a_piece_is_read_before_the_answer() -> None:
    asked = 0

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 60, "more_body": asked < 5}

    status, read_before = bare(
        guard_of(max_body_bytes=100),
        [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")],
        receive,
        lambda: asked,
    )
    assert status == 413
    assert read_before == 2
    assert asked == 5  # the rest is read too, and dropped, so that the client gets to the answer


def test_a_client_that_waits_to_be_asked_is_refused_unread() -> None:
    headers = [(b"host", b"localhost"), (b"content-length", b"999"), (b"expect", b"100-continue")]
    assert bare(guard_of(max_body_bytes=100), headers, fail)[0] == 413


def test_a_body_that_never_comes_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.0)
    monkeypatch.setattr(module, "DISCARD_SECONDS", 0.0)

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()

    assert bare(guard_of(), [(b"host", b"localhost"), (b"content-length", b"10")], receive)[0] == 408


def test_a_client_that_leaves_while_sending_reaches_no_route() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    assert bare(guard_of(), [(b"host", b"localhost"), (b"content-length", b"10")], receive)[0] is None


def test_while_draining_only_monitoring_is_answered() -> None:
    service = service_of()
    guard = guarded(small_app(service), service)
    service.draining = True
    refused = ask(guard, "POST", "/echo", JSON, b"{}")
    assert refused.status_code == 503
    assert refused.headers["retry-after"].isdigit()
    assert ask(guard, "GET", "/health").status_code == 200
    assert ask(guard, "GET", "/ready").status_code == 503


def test_websockets_are_refused() -> None:
    async def connect() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await guard_of()({"type": "websocket", "path": "/", "headers": []}, fail, send)
        return sent

    assert [message["type"] for message in asyncio.run(connect())] == ["websocket.close"]


async def fail() -> Message:
    raise AssertionError("nothing was to be read")


async def nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def bare(
    guard: Guard, headers: list[tuple[bytes, bytes]], receive: Any = nothing, observe: Any = lambda: 0
) -> tuple[int | None, int]:
    """The status of a POST without an HTTP client between, and what `observe` said when it was sent."""
    statuses: list[tuple[int | None, int]] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append((message["status"], observe()))

    scope = {"type": "http", "method": "POST", "path": "/echo", "headers": headers, "server": ("127.0.0.1", 8000)}
    asyncio.run(guard(scope, receive, send))
    return statuses[0] if statuses else (None, 0)
