"""Trouble 30: no API key, or paths that the key does not cover → everything but health is closed to strangers.

Until there are keys, nobody but this machine's own programs gets in: the server listens on loopback, answers to loopback
names only, and takes nothing from the pages of a browser.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from pagoda.config import ServerConfig
from pagoda.errors import PagodaError
from pagoda.server.guard import guarded
from pagoda.server.run import bind
from tests.server.small_app import service_of, small_app

PATHS = (
    *("/v1/models", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/metrics", "/openapi.json"),
    *("/", "/docs", "//health", "/health/", "/health/../v1/models", "/HEALTH", "/ready/x"),
)


def test_by_default_it_listens_where_only_this_machine_comes() -> None:
    with bind(ServerConfig(port=0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "255.255.255.255"])
def test_another_address_needs_a_yes(host: str) -> None:
    with pytest.raises(PagodaError, match="--allow-unauthenticated") as refused:
        bind(ServerConfig(host=host, port=0))
    assert host in str(refused.value)


def test_with_a_yes_it_listens_there() -> None:
    with bind(ServerConfig(host="0.0.0.0", port=0, allow_unauthenticated=True)) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("path", PATHS)
def test_no_path_but_the_probes_answers_to_a_rebound_name(path: str) -> None:
    assert ask(path, "rebound.example:8000").status_code == 421


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_the_probes_do(path: str) -> None:
    assert ask(path, "rebound.example:8000").status_code == 200


def ask(path: str, host: str) -> httpx.Response:
    service = service_of()

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=guarded(small_app(service), service))
        async with httpx.AsyncClient(transport=transport) as client:
            url = httpx.URL(scheme="http", host="127.0.0.1", raw_path=path.encode())
            return await client.get(url, headers={"host": host})

    return asyncio.run(send())
