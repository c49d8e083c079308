"""`benchmarks/gpu.sh` measures on a GPU, which is seldom at hand: here the same runs tiny, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu.apart import run_apart
from gpu.report import Report, read_json

ROOT = Path(__file__).parents[2]
# One of each kind.
KINDS = (
    "environment",
    "ceilings",
    "weights",
    "agreement with grouped queries",
    "bf16",
    "kernel tests",
    "int4",
    "deterministic",
    "compute-sanitizer",
    "tuning",
)
# One of each kind.
KINDS = (
    "environment",
    "ceilings",
    "weights",
    "agreement with grouped queries",
    "bf16",
    "kernel tests",
    "int4",
    "deterministic",
    "compute-sanitizer",
    "tuning",
)


def measured(out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and what each stage found out."""
    command = ["bash", "benchmarks/gpu.sh", "--tiny", "--minutes", "20", "--out", str(out), *options]
    environment = {**os.environ, "PYTHON": sys.executable}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    assert (out / "results.json").exists(), ended.stderr
    return ended.returncode, read_json(out / "results.json")["stages"]


@pytest.mark.slow
def test_stages_of_every_kind_run(tmp_path: Path) -> None:
    status, stages = measured(tmp_path, "--only", ",".join(KINDS))

    assert {name: stage["words"] for name, stage in stages.items() if stage["outcome"] != "done"} == {}
    assert (status, set(stages)) == (0, set(KINDS))
    for found in stages["agreement with grouped queries"]["figures"]["float32"].values():
        assert found["positions"] > 0
        assert found["largest"] < 1e-4
    assert stages["tuning"]["figures"]["products"]
    assert stages["kernel tests"]["figures"]["passed"] > 0
    assert stages["kernel tests"]["figures"]["failed"] == 0
    bf16 = stages["bf16"]["figures"]
    assert bf16["start_to_first_token_seconds"] > bf16["load_seconds"] > 0
    for decode in (bf16["decode 2"], bf16["decode 3"]):
        assert decode["fraction_of_limit"] == pytest.approx(decode["limit_ms"] / decode["step_ms"])
    assert bf16["decode 3"]["bytes_per_step"] > bf16["decode 2"]["bytes_per_step"] > bf16["weight_bytes"] / 2
    assert "tokens/s" in (tmp_path / "table.txt").read_text(encoding="utf-8")


def test_without_time_it_says_so_of_every_stage(tmp_path: Path) -> None:
    status, stages = measured(tmp_path, "--minutes", "0", "--only", "environment,bf16")
    assert status == 1
    assert {stage["outcome"] for stage in stages.values()} == {"no time was left"}


def test_a_stage_that_takes_too_long_is_stopped_with_all_that_it_started() -> None:
    hanging = "import subprocess; subprocess.run(['sleep', '600'])"
    outcome, _ = run_apart([sys.executable, "-c", hanging], 0.2, os.environ)
    assert outcome == "stopped after 0 s"


def test_how_a_stage_ended_and_what_it_said() -> None:
    assert run_apart([sys.executable, "-c", "print('hello')"], 60, os.environ) == ("done", "hello\n")
    assert run_apart([sys.executable, "-c", "raise SystemExit(3)"], 60, os.environ) == ("failed with 3", "")


def test_a_report_is_whole_after_each_figure(tmp_path: Path) -> None:
    report = Report(tmp_path / "report.json")
    report(first=1)
    report(second={"a": 2})
    assert json.loads((tmp_path / "report.json").read_text()) == {"first": 1, "second": {"a": 2}}
    assert read_json(tmp_path / "missing.json") == {}
