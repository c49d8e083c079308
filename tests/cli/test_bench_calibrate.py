"""`pagoda bench calibrate`: a server at work is measured, and what is saved can be loaded and used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.cli import bench_calibrate
from pagoda.cli.calibration_loads import Load, loads
from pagoda.planning.calibrated_time import load_timer
from pagoda.planning.costs import StepCost
from tests.cli.conftest import Pagoda

SMALL = ("--max-num-seqs", "4", "--max-batched-tokens", "32", "--threads", "1", "--num-kv-blocks", "64")


@pytest.fixture(autouse=True)
def one_round_of_all_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr(bench_calibrate, "MOST_OF_A_ROUND", 1e9)


def test_it_measures_a_server_and_saves_a_timer(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    done = pagoda("bench", "calibrate", tiny_model, "--output", path, "--seconds", "2", *SMALL, "--json")
    report = json.loads(done.stdout)
    # Steps as short as these scatter on a busy machine.
    assert (done.returncode, done.stderr.rstrip("\n")) == (0, bench_calibrate.unrest(report) or "")
    timer = load_timer(path)
    assert report["output"] == str(path)
    assert report["model"] == timer.model == str(tiny_model)
    assert report["steps"] > 50
    assert report["loads"] == len(loads(4, 32, 256, 1024))
    assert 0 < report["request_seconds"] == timer.request_seconds < 1
    one, many = StepCost(1, 40_000, 0, 0, 0, 0, 1), StepCost(32, 1_280_000, 0, 0, 0, 0, 1)
    assert 0 < timer.seconds(one) <= timer.seconds(many) < 1


def test_its_table_is_for_people(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    shown = pagoda("bench", "calibrate", tiny_model, "--output", path, "--seconds", "1", *SMALL).stdout.splitlines()
    assert [line.split("  ")[0] for line in shown] == [
        "measured",
        "error of the fit",
        "smallest step",
        "a request besides",
        "saved to",
    ]


def test_a_fit_of_a_busy_machine_is_told_from_a_good_one() -> None:
    assert bench_calibrate.unrest({"median_error": 0.08}) is None
    warning = bench_calibrate.unrest({"median_error": 0.31})
    assert warning is not None
    assert "31%" in warning


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--seconds", "nan"), "--seconds"),
        (("--seconds", "0"), "--seconds"),
        (("--output", "no/such/folder/file.json"), "--output"),
        (("--output", "."), "--output"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    pagoda: Pagoda, tiny_model: Path, options: tuple[str, str], field: str
) -> None:
    done = pagoda("bench", "calibrate", tiny_model, *options)
    assert done.returncode == 2
    assert done.stderr.startswith(f"pagoda: {field}: got ")


def test_loads_are_of_every_kind_and_fit_into_the_cache() -> None:
    found = loads(64, 512, 2048, 40_000)
    assert {load.kind for load in found} == {"prompt", "batch", "traffic"}
    assert {load.requests for load in found if load.kind == "batch"} >= {1, 2, 4, 8, 16, 32, 64}
    assert Load("prompt", 1, 1, (512, 512), (2, 2)) in found
    assert [load.prefill_tokens for load in found] == sorted(load.prefill_tokens for load in found)
    for load in found:
        longest = load.prompt_tokens[1] + load.output_tokens[1]
        assert longest <= 2048
        assert load.concurrency * longest <= 40_000
        assert 1 <= load.prompt_tokens[0] <= load.prompt_tokens[1]
        assert 2 <= load.output_tokens[0] <= load.output_tokens[1]


@pytest.mark.parametrize(("sequences", "batched", "length", "cache"), [(1, 1, 8, 8), (2, 16, 24, 32), (3, 5, 4096, 48)])
def test_small_limits_leave_something_to_measure(sequences: int, batched: int, length: int, cache: int) -> None:
    found = loads(sequences, batched, length, cache)
    assert any(load.kind == "prompt" for load in found)
    assert all(
        load.concurrency <= sequences and load.prompt_tokens[1] + load.output_tokens[1] <= length for load in found
    )
