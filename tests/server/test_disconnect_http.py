"""Clients that leave a real server, or read nothing of what it sends: seen from outside, in its metrics."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.server.good_streams import GoodStreams
from tests.server.process import RunningServer
from tests.server.wire import connect, post

LONG: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 240, "ignore_eos": True}
POLLS = 20_000  # of the metrics, until a state that must come has come


def gauge(client: httpx.Client, name: str) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return next(sample.value for family in families for sample in family.samples if sample.name == name)


def wait_until(reached: Callable[[], bool]) -> None:
    assert any(reached() for _ in range(POLLS))


def send(server: RunningServer, body: dict[str, Any]) -> socket.socket:
    connection = connect(server.url)
    connection.sendall(post(server.url, "/v1/completions", json.dumps(body).encode()))
    return connection


def leave(connection: socket.socket, *, reset: bool) -> None:
    if reset:  # as of a process that is killed: no goodbye
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def idle(client: httpx.Client) -> bool:
    return (
        gauge(client, "pagoda_num_requests_running"),
        gauge(client, "pagoda_num_requests_waiting"),
        gauge(client, "pagoda_kv_cache_usage_perc"),
    ) == (0, 0, 0)


def test_when_all_clients_have_left_the_cache_is_free(server: RunningServer) -> None:
    """Far more work than could be done meanwhile: 128 choices each of 240 tokens, most of them waiting."""
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        wait_until(lambda: idle(client))
        generated = gauge(client, "pagoda_generation_tokens_total")
        connections = [send(server, {**LONG, "n": 128, "stream": stream}) for stream in (True, True, False, False)]
        wait_until(lambda: gauge(client, "pagoda_num_requests_waiting") > 128)
        assert gauge(client, "pagoda_kv_cache_usage_perc") > 0
        for number, connection in enumerate(connections):
            leave(connection, reset=number % 2 == 0)
        wait_until(lambda: idle(client))
        assert gauge(client, "pagoda_generation_tokens_total") - generated < 4 * 128 * 240


def test_clients_that_read_nothing_hold_up_nobody(server: RunningServer) -> None:
    stalled = []
    try:
        for _ in range(2):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            body = {**LONG, "n": 8, "logprobs": 20, "stream": True}
            connection.sendall(post(server.url, "/v1/completions", json.dumps(body).encode()))
            stalled.append(connection)
        with GoodStreams(server) as good:
            good.check()
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            wait_until(lambda: idle(client))  # the engine has done the work of those who do not read, too
    finally:
        for connection in stalled:
            connection.close()
