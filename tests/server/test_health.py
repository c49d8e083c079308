from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pagoda.config import ServerConfig
from pagoda.llm import AsyncLLM
from pagoda.server.metrics import ServerMetrics
from pagoda.server.routes import health
from pagoda.server.service import Service
from tests.server.stand_ins import StandInLLM, stats


@pytest.fixture
def llm() -> StandInLLM:
    return StandInLLM()


@pytest.fixture
def service(llm: StandInLLM) -> Service:
    stand_in = cast(AsyncLLM, llm)
    return Service(stand_in, ServerConfig(), ServerMetrics(stand_in, "tiny"))


@pytest.fixture
def client(service: Service) -> TestClient:
    application = FastAPI()
    application.include_router(health.router(service))
    return TestClient(application)


def codes(client: TestClient) -> tuple[int, int]:
    return client.get("/health").status_code, client.get("/ready").status_code


def test_idle_is_healthy_and_ready(client: TestClient) -> None:
    answer = client.get("/health")
    assert answer.json() == {
        "status": "ok",
        "reason": None,
        "requests_running": 0,
        "requests_waiting": 0,
        "stalled_seconds": 0,
    }
    assert answer.headers["cache-control"] == "no-store"
    assert codes(client) == (200, 200)


def test_busy_is_healthy_and_ready(client: TestClient, llm: StandInLLM) -> None:
    llm.stats = stats(busy_for=100.0, running=64, waiting=7, free=0)
    llm.num_open = 7
    assert codes(client) == (200, 200)
    assert client.get("/health").json()["requests_running"] == 64


def test_full_is_healthy_but_not_ready(client: TestClient, llm: StandInLLM) -> None:
    llm.num_open = 8
    assert codes(client) == (200, 503)
    assert client.get("/ready").json()["reason"] == "8 choices are open, as many as may run and wait"


def test_draining_is_healthy_but_not_ready(client: TestClient, service: Service) -> None:
    service.draining = True
    assert codes(client) == (200, 503)
    assert client.get("/ready").json()["reason"] == "the server is stopping"


def test_a_frozen_engine_is_neither(client: TestClient, llm: StandInLLM) -> None:
    llm.stats = stats(busy_for=health.STALLED_AFTER_SECONDS + 1, running=1)
    assert codes(client) == (503, 503)
    body = client.get("/health").json()
    assert body["status"] == "unavailable"
    assert body["reason"] == "the engine has been at one step for 301 s (at most 300)"


def test_a_failed_engine_is_neither(client: TestClient, llm: StandInLLM) -> None:
    llm.failure = "the engine failed: ValueError: a defect"
    assert codes(client) == (503, 503)
    assert client.get("/health").json()["reason"] == "the engine failed: ValueError: a defect"


def test_a_real_engine_is_healthy_until_it_is_closed(tiny_model: str) -> None:
    llm = AsyncLLM(tiny_model, threads=1, num_kv_blocks=64)
    try:
        application = FastAPI()
        application.include_router(health.router(Service(llm, ServerConfig(), ServerMetrics(llm, "tiny"))))
        client = TestClient(application)
        assert codes(client) == (200, 200)
    finally:
        llm.close()
    assert codes(client) == (503, 503)
    assert client.get("/ready").json()["reason"] == "the engine was closed"


def test_an_engine_whose_steps_all_fail_is_ill(client: TestClient, llm: StandInLLM) -> None:
    llm.stats = replace(stats(), failed_steps=2)
    assert codes(client) == (200, 200)
    llm.stats = replace(stats(), failed_steps=3)
    assert codes(client) == (503, 503)
    assert client.get("/health").json()["reason"] == "the last 3 steps failed; the log has the cause"
