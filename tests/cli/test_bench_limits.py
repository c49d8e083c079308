"""`pagoda bench limits`: every figure under its name, by the threads that were asked for."""

from __future__ import annotations

import json

import pytest

from pagoda.cli import bench_limits
from pagoda.planning.formats import FORMATS
from pagoda.runner.native_device import FORCED_ISA
from tests.cli.conftest import Pagoda


@pytest.fixture(autouse=True)
def small_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_limits, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(bench_limits, "FORMATS", {"Q4_0": FORMATS["Q4_0"]})
    monkeypatch.setattr(bench_limits, "ROUNDS", 1)
    monkeypatch.setattr(bench_limits, "READ_SECONDS", 0.0)


def test_json(pagoda: Pagoda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCED_ISA, "portable")
    report = json.loads(pagoda("bench", "limits", "--threads", "1", "--json").stdout)
    assert (report["threads"], report["instruction_set"]) == (1, "portable")
    assert report["read_bandwidth"] > 0
    assert set(report["peak_operations"]) == {"int8", "bf16", "fp32"}
    assert set(report["format_ceilings"]) == {"Q4_0"}
    assert all(rate > 0 for rate in [*report["peak_operations"].values(), *report["format_ceilings"].values()])


def test_table(pagoda: Pagoda) -> None:
    shown = pagoda("bench", "limits", "--threads", "2").stdout.splitlines()
    assert shown[0].startswith("threads         2 (")
    assert [line.split("  ")[0] for line in shown[1:]] == [
        "read bandwidth",
        "int8 peak",
        "bf16 peak",
        "fp32 peak",
        "Q4_0 product",
    ]
