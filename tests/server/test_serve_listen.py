"""How a server listens: addresses and ports, what is refused at start, broken requests, and that it sleeps when idle."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pagoda.config import ServerConfig
from pagoda.errors import PagodaError
from pagoda.server.run import bind, url_of
from tests.server.conftest import Serve
from tests.server.process import RunningServer
from tests.server.small_server import SmallServer, small_server
from tests.server.wire import exchange, post

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def small() -> Iterator[SmallServer]:
    with small_server() as running:
        yield running


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("localhost", "http://127.0.0.1:")])
def test_port_zero_takes_a_free_one(host: str, url: str) -> None:
    with bind(ServerConfig(host=host, port=0)) as listener:
        assert url_of(listener).startswith(url)
        assert int(url_of(listener).rpartition(":")[2]) > 0


def test_an_unspecified_address_is_shown_as_this_machine() -> None:
    with bind(ServerConfig(host="0.0.0.0", port=0, allow_unauthenticated=True)) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_a_taken_port_is_refused_naming_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PagodaError, match=f"--port: {port} on 127.0.0.1 is taken"):
            bind(ServerConfig(port=port))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "1.2.3.4.5", "", "a" * 300, "bücher..example"])
def test_a_host_that_is_no_address_is_refused_naming_it(host: str) -> None:
    with pytest.raises(PagodaError, match="--host"):
        bind(ServerConfig(host=host, port=0))


def test_an_address_of_another_machine_is_refused() -> None:
    # 192.0.2.0/24 is set aside for documentation: no machine has it.
    with pytest.raises(PagodaError, match=re.escape("192.0.2.7")):
        bind(ServerConfig(host="192.0.2.7", port=0, allow_unauthenticated=True))


def test_what_is_no_http_is_refused_in_the_usual_form(small: SmallServer) -> None:
    answer = exchange(small.url, b"hello\r\n\r\n")
    assert answer.status == 400
    assert answer.error["code"] == "invalid_http"
    assert exchange(small.url, b"GET /v1/models HTTP/1.1\r\n\r\n").status == 400  # without a Host


def test_a_client_that_writes_ten_megabytes_before_it_reads_gets_the_refusal(small: SmallServer) -> None:
    refused = httpx.post(f"{small.url}/echo", content=b"[" * 10_000_000, headers={"content-type": "application/json"})
    assert refused.status_code == 413
    assert "4,194,304" in refused.json()["error"]["message"]


def test_ten_megabytes_in_chunks_are_refused_too(small: SmallServer) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(160):
            yield b"[" * 65_536

    refused = httpx.post(f"{small.url}/echo", content=pieces(), headers={"content-type": "application/json"})
    assert refused.status_code == 413


def test_a_client_that_waits_to_be_asked_is_refused_before_it_sends(small: SmallServer) -> None:
    head = post(small.url, "/echo", b"", ("Content-Length", "10000000"), ("Expect", "100-continue"))
    answer = exchange(small.url, head)
    assert answer.status == 413


def test_no_header_tells_what_runs_here(small: SmallServer) -> None:
    headers = httpx.get(f"{small.url}/v1/models").headers
    assert "server" not in headers
    assert not any(name.startswith("access-control") for name in headers)


@linux
def test_an_idle_server_sleeps(small: SmallServer) -> None:
    assert httpx.get(f"{small.url}/v1/models").status_code == 200
    assert wakes_in_a_second(small.process.pid) < 5  # a clock of 10 a second would show


@linux
@pytest.mark.slow
def test_an_idle_engine_sleeps_and_goes_before_its_server(serve: Serve) -> None:
    with serve() as server:
        body = {"model": "tiny", "prompt": "Hi", "max_tokens": 5}
        assert httpx.post(f"{server.base_url}/completions", json=body, timeout=60).status_code == 200
        assert wakes_in_a_second(server.process.pid) < 5
        niceness = threads(server)
        assert niceness["pagoda-engine"] == niceness_of_tests()
        assert niceness["pagoda-output"] == niceness[main_thread(server)] == min(niceness_of_tests() + 10, 19)


def wakes_in_a_second(pid: int) -> int:
    """How often a thread of the process went to sleep within a second: each time it had been awake."""
    before = sleeps(pid)
    time.sleep(1)
    return sleeps(pid) - before


def sleeps(pid: int) -> int:
    counts = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))
        counts += int(line.split()[1])
    return counts


def threads(server: RunningServer) -> dict[str, int]:
    """Each thread's name (the main one's is its program's) and niceness."""
    found: dict[str, int] = {}
    for stat in Path(f"/proc/{server.process.pid}/task").glob("*/stat"):
        name, _, fields = stat.read_text().partition("(")[2].rpartition(")")
        found.setdefault(name, int(fields.split()[16]))
    return found


def main_thread(server: RunningServer) -> str:
    return Path(f"/proc/{server.process.pid}/comm").read_text().strip()


def niceness_of_tests() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[16])
