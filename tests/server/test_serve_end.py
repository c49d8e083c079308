"""How a server ends: what runs is finished, nothing new is taken, and a second signal is obeyed at once."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.server.conftest import Serve
from tests.server.small_server import SmallServer, small_server

PATIENCE = 60
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def small() -> Iterator[SmallServer]:
    with small_server() as running:
        yield running


@pytest.mark.parametrize("number", SIGNALS)
def test_what_runs_is_finished_and_nothing_new_is_taken(small: SmallServer, number: signal.Signals) -> None:
    with httpx.Client(base_url=small.url, timeout=PATIENCE) as client, httpx.Client(base_url=small.url) as other:
        assert other.get("/ready").status_code == 200
        with client.stream("GET", "/stream", params={"pieces": 10}) as response:
            lines = response.iter_lines()
            assert next(lines) == "0"
            small.process.send_signal(number)
            wait_until_draining(other)
            assert other.get("/health").status_code == 200
            refused = other.get("/v1/models")
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
            assert list(lines) == [str(number) for number in range(1, 10)]
        assert small.process.wait(PATIENCE) == 0
    assert said(small) == ""


def test_an_idle_server_ends_although_a_client_keeps_its_connection(small: SmallServer) -> None:
    with httpx.Client(base_url=small.url) as client:
        assert client.get("/v1/models").status_code == 200
        small.process.terminate()
        assert small.process.wait(PATIENCE) == 0
    assert said(small) == ""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_it_at_once(small: SmallServer, number: signal.Signals) -> None:
    with (
        httpx.Client(base_url=small.url, timeout=PATIENCE) as client,
        httpx.Client(base_url=small.url) as other,
        client.stream("GET", "/stream", params={"pieces": 1_000_000}) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == "0"
        small.process.terminate()
        wait_until_draining(other)
        small.process.send_signal(number)
        assert small.process.wait(PATIENCE) == -number
    assert said(small) == ""


# Less than uvicorn waits for what it then ends by force.
SOON = 8


@pytest.mark.parametrize("path", ["/echo", "/health"])
def test_a_body_that_is_not_whole_puts_off_no_end(small: SmallServer, path: str) -> None:
    with half_sent(small, path, "localhost") as client:
        small.process.terminate()
        answer = all_of(client)
        assert small.process.wait(SOON) == 0
    assert answer.startswith("HTTP/1.1 503 ")
    assert '"shutting_down"' in answer
    assert said(small) == ""


def test_a_body_that_is_not_whole_is_refused_at_once_although_others_run(small: SmallServer) -> None:
    with (
        httpx.Client(base_url=small.url, timeout=PATIENCE) as other,
        other.stream("GET", "/stream", params={"pieces": 1_000_000}) as response,
        half_sent(small, "/echo", "localhost") as client,
    ):
        assert next(response.iter_lines()) == "0"
        small.process.terminate()
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 503 ")


def test_the_rest_of_a_refused_body_puts_off_no_end(small: SmallServer) -> None:
    with half_sent(small, "/echo", "evil.example") as client:
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 421 ")
        small.process.terminate()
        assert small.process.wait(SOON) == 0
    assert said(small) == ""


@pytest.mark.slow
def test_a_model_s_stream_is_finished(serve: Serve) -> None:
    with serve() as server, httpx.Client(base_url=server.base_url, timeout=PATIENCE) as client:
        body = {
            "model": "tiny",
            "prompt": "Hi",
            "max_tokens": 200,
            "stream": True,
            "ignore_eos": True,
            "temperature": 0,
        }
        whole = client.post("/completions", json={**body, "stream": False}).json()["choices"][0]["text"]
        with client.stream("POST", "/completions", json=body) as response:
            lines = response.iter_lines()
            first = next(lines)
            server.process.terminate()
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        texts = [httpx.Response(200, text=line[6:]).json()["choices"][0]["text"] for line in [first, *rest[:-1]]]
        assert "".join(texts) == whole
        assert server.process.wait(PATIENCE) == 0
        assert "Traceback" not in server.stderr()


def wait_until_draining(client: httpx.Client) -> None:
    while client.get("/ready").status_code == 200:
        pass


def half_sent(small: SmallServer, path: str, host: str) -> socket.socket:
    """A connection over which a request came, but a byte only of its body; the server has read it."""
    url = httpx.URL(small.url)
    assert url.port is not None
    client = socket.create_connection((url.host, url.port), timeout=SOON)
    client.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n{{".encode())
    # What came first is read first.
    assert httpx.get(f"{small.url}/health").status_code == 200
    return client


def all_of(client: socket.socket) -> str:
    return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def said(small: SmallServer) -> str:
    assert small.process.stderr is not None
    return small.process.stderr.read()
