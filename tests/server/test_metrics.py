from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from pagoda.config import ServerConfig
from pagoda.core.prefix_cache import Miss
from pagoda.core.scheduler import Preemption
from pagoda.core.step import RequestKey, ScheduledRow, SchedulerOutput
from pagoda.llm import AsyncLLM
from pagoda.planning.costs import StepCost
from pagoda.sampling_params import SamplingParams
from pagoda.server.metrics import ServerMetrics
from pagoda.server.routes import metrics as metrics_route
from pagoda.server.service import Service
from pagoda.telemetry.steps import StepRecord
from tests.server.stand_ins import StandInLLM, stats

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "serving.md"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def llm() -> StandInLLM:
    return StandInLLM()


@pytest.fixture
def metrics(llm: StandInLLM, clock: Clock) -> ServerMetrics:
    return ServerMetrics(cast(AsyncLLM, llm), "tiny", clock)


def scraped(metrics: ServerMetrics) -> dict[str, float]:
    """Every sample, named as in `pagoda_request_success_total{stop}`: the label that is not the model's in braces."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.startswith("pagoda_") and sample.name != "pagoda_build_info":
                assert labels.pop("model_name") == "tiny"
            found[sample.name + "".join(f"{{{value}}}" for value in labels.values())] = sample.value
    return found


def test_every_metric_is_there_before_the_first_request(metrics: ServerMetrics) -> None:
    found = scraped(metrics)
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "num_preemptions_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "request_success_total{stop}",
        "request_success_total{error}",
        "time_to_first_token_seconds_count",
        "time_per_output_token_seconds_count",
        "request_time_per_output_token_seconds_count",
        "e2e_request_latency_seconds_count",
        "request_prompt_tokens_count",
        "request_generation_tokens_count",
        "steps_total",
        "step_seconds_total",
        "flops_total",
        "bytes_total",
    ):
        assert f"pagoda_{name}" in found, name
    assert found["process_resident_memory_bytes"] > 1e6


def test_the_documentation_has_every_metric_and_no_other(metrics: ServerMetrics) -> None:
    table = [line for line in DOCUMENTATION.read_text(encoding="utf-8").splitlines() if line.startswith("| `pagoda_")]
    documented = {name for line in table for name in re.findall(r"`(pagoda_\w+)", line.split("|")[1])}
    families = text_string_to_metric_families(metrics.render().decode())
    rendered = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if family.name.startswith("pagoda_") and not family.name.endswith("_created")
    }
    assert documented == rendered


def test_a_request_is_timed_from_admission(metrics: ServerMetrics, clock: Clock) -> None:
    timer = metrics.started(prompt_tokens=30)
    clock.now += 0.5
    timer.tokens(1)
    clock.now += 0.2
    timer.tokens(1)
    clock.now += 0.4
    timer.tokens(1)
    clock.now += 0.1
    timer.finished("length")
    found = scraped(metrics)
    assert found["pagoda_prompt_tokens_total"] == found["pagoda_request_prompt_tokens_sum"] == 30
    assert found["pagoda_generation_tokens_total"] == found["pagoda_request_generation_tokens_sum"] == 3
    assert found["pagoda_time_to_first_token_seconds_sum"] == pytest.approx(0.5)
    assert found["pagoda_time_per_output_token_seconds_count"] == 2
    assert found["pagoda_time_per_output_token_seconds_sum"] == pytest.approx(0.6)
    assert found["pagoda_request_time_per_output_token_seconds_sum"] == pytest.approx(0.3)
    assert found["pagoda_e2e_request_latency_seconds_sum"] == pytest.approx(1.2)
    assert found["pagoda_request_success_total{length}"] == 1
    assert found["pagoda_request_success_total{stop}"] == 0


def test_tokens_that_come_together_share_the_wait(metrics: ServerMetrics, clock: Clock) -> None:
    timer = metrics.started(1)
    timer.tokens(1)
    clock.now += 0.75
    timer.tokens(3)
    found = scraped(metrics)
    assert found["pagoda_time_per_output_token_seconds_count"] == 3
    assert found["pagoda_time_per_output_token_seconds_bucket{0.3}"] == 3
    assert found["pagoda_time_per_output_token_seconds_bucket{0.2}"] == 0


def test_choices_are_timed_apart(metrics: ServerMetrics, clock: Clock) -> None:
    timer = metrics.started(1)
    for _ in range(3):
        clock.now += 0.25
        timer.tokens(1, choice=0)
        timer.tokens(1, choice=1)
    timer.finished("stop", choice=0)
    timer.finished("stop", choice=1)
    found = scraped(metrics)
    assert found["pagoda_time_to_first_token_seconds_count"] == 1
    assert found["pagoda_time_per_output_token_seconds_count"] == 4
    assert found["pagoda_time_per_output_token_seconds_sum"] == pytest.approx(1.0)
    assert found["pagoda_request_generation_tokens_bucket{2.0}"] == 0
    assert found["pagoda_request_generation_tokens_bucket{5.0}"] == 2
    assert found["pagoda_request_success_total{stop}"] == 2


def test_a_request_that_ends_without_tokens_has_no_token_times(metrics: ServerMetrics) -> None:
    timer = metrics.started(4)
    timer.tokens(0)
    timer.finished("abort")
    found = scraped(metrics)
    assert found["pagoda_request_success_total{abort}"] == 1
    assert found["pagoda_time_to_first_token_seconds_count"] == 0
    assert found["pagoda_request_time_per_output_token_seconds_count"] == 0
    assert found["pagoda_request_generation_tokens_bucket{1.0}"] == 1


def test_the_engine_is_read_when_scraped(metrics: ServerMetrics, llm: StandInLLM) -> None:
    llm.stats = stats(busy_for=2.0, running=5, waiting=7, free=16)
    llm.stats = replace(llm.stats, num_cached_blocks=9, violations=1)
    llm.stats.prefix.queried_tokens, llm.stats.prefix.hit_tokens = 100, 64
    llm.stats.prefix.misses[Miss.OTHER_TENANT] += 2
    llm.num_open = 12
    row = ScheduledRow(RequestKey("a", 0), 0, 6, (0,), True)
    record = StepRecord.of(
        SchedulerOutput(0, (), (), (row,)),
        StepCost(num_tokens=6, flops=900, weight_bytes=60, kv_read_bytes=15, kv_written_bytes=5),
        seconds=0.5,
        overhead_seconds=0.25,
        num_free_blocks=16,
        num_waiting=7,
        preemptions=(Preemption(RequestKey("b", 0), 40, RequestKey("a", 0)),),
    )
    llm.step_log.append(record)
    llm.step_log.append(record)
    found = scraped(metrics)
    assert found["pagoda_num_requests_running"] == 5
    assert found["pagoda_num_requests_waiting"] == 7
    assert found["pagoda_num_requests_open"] == 12
    assert found["pagoda_kv_cache_usage_perc"] == 0.75
    assert found["pagoda_num_preemptions_total"] == 3
    assert found["pagoda_preempted_tokens_total"] == 80
    assert found["pagoda_kv_cache_cached_blocks"] == 9
    assert found["pagoda_kv_cache_violations_total"] == 1
    assert found["pagoda_prefix_cache_queries_total"] == 100
    assert found["pagoda_prefix_cache_hits_total"] == 64
    assert found["pagoda_prefix_cache_misses_total{other_tenant}"] == 2
    assert found["pagoda_prefix_cache_misses_total{evicted}"] == 0
    assert found["pagoda_engine_up"] == 1
    assert found["pagoda_engine_stalled_seconds"] >= 2
    assert found["pagoda_steps_total"] == 2
    assert found["pagoda_step_seconds_total"] == 1.0
    assert found["pagoda_step_prefill_tokens_total"] == 12
    assert found["pagoda_flops_total"] == 1800
    assert found["pagoda_bytes_total"] == 160
    llm.failure = "the engine failed"
    assert scraped(metrics)["pagoda_engine_up"] == 0


def test_registries_are_apart(llm: StandInLLM) -> None:
    one, other = (ServerMetrics(cast(AsyncLLM, llm), "tiny") for _ in range(2))
    one.started(7)
    assert scraped(other)["pagoda_prompt_tokens_total"] == 0


def test_a_model_s_name_cannot_break_the_format(llm: StandInLLM) -> None:
    text = ServerMetrics(cast(AsyncLLM, llm), 'a"b\n} 1\\').render().decode()
    names = {
        sample.labels["model_name"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "model_name" in sample.labels
    }
    assert names == {'a"b\n} 1\\'}


async def _generate(llm: AsyncLLM) -> None:
    await llm.generate("Hello", SamplingParams(max_tokens=9, ignore_eos=True))


def test_the_route_shows_what_the_engine_did(tiny_model: str) -> None:
    with_model = AsyncLLM(tiny_model, threads=1, num_kv_blocks=64)
    try:
        metrics = ServerMetrics(with_model, "tiny")
        asyncio.run(_generate(with_model))
        application = FastAPI()
        application.include_router(metrics_route.router(Service(with_model, ServerConfig(), metrics)))
        answer = TestClient(application).get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = scraped(metrics)
        assert found["pagoda_step_decode_tokens_total"] == 8
        assert found["pagoda_step_prefill_tokens_total"] == 5
        assert found["pagoda_kv_cache_usage_perc"] == 0
        assert found["pagoda_prefix_cache_queries_total"] == 5
        assert found["pagoda_prefix_cache_misses_total{too_short}"] == 1
        assert "pagoda_steps_total" in answer.text
    finally:
        with_model.close()
