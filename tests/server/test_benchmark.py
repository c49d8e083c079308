"""benchmarks/serve.py runs, and its figures fit together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import RunningServer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "serve.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report(tiny_model: str) -> dict[str, Any]:
    load = ("--requests", "5", "--concurrency", "3", "--prompt-tokens", "8:40", "--output-tokens", "6:12")
    settings = ("--set", "threads=1", "--set", "num_kv_blocks=64")
    found: dict[str, Any] = json.loads(run(tiny_model, *load, "--repeat", "2", *settings, "--json"))
    return found


@pytest.mark.parametrize("side", ["server", "in_process"])
def test_both_sides_did_the_whole_load(report: dict[str, Any], side: str) -> None:
    figures = report[side]
    assert figures["requests"] == 10
    assert 80 <= figures["prompt_tokens"] <= 400
    assert 60 <= figures["output_tokens"] <= 120
    assert figures["total_tokens_per_second"] > figures["output_tokens_per_second"] > 0
    for name in ("ttft", "tpot", "inter_token", "e2e"):
        spread = figures[f"{name}_seconds"]
        assert 0 <= spread["p50"] <= spread["p90"] <= spread["p99"]
    assert figures["ttft_seconds"]["p99"] <= figures["e2e_seconds"]["p99"] <= figures["seconds"]
    assert figures["engine_cpu_seconds"] > 0
    assert figures["api_cpu_seconds"] > 0


def test_the_loads_were_the_same(report: dict[str, Any]) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        assert report["server"][name] == report["in_process"][name]


def test_the_cost_follows_from_the_figures(report: dict[str, Any]) -> None:
    server, cost = report["server"], report["cost"]
    ratio = server["total_tokens_per_second"] / report["in_process"]["total_tokens_per_second"]
    assert cost["tokens_per_second_ratio"] == pytest.approx(ratio)
    assert cost["api_cpu_over_wall"] == pytest.approx(server["api_cpu_seconds"] / server["seconds"])


def test_a_server_that_runs_already(server: RunningServer) -> None:
    shown = run("--url", server.url, "--requests", "2", "--prompt-tokens", "8", "--output-tokens", "4")
    assert shown.startswith("server: 2 requests in ")
    assert "cost of the server" not in shown
