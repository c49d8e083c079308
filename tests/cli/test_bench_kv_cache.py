"""`pagoda bench kv-cache`, with a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pagoda.cli.bench_kv_recompute import Comparison, report_of
from pagoda.cli.charts import Axis, Chart, Point, Series
from pagoda.cli.terminal_chart import terminal_chart
from tests.cli.conftest import Pagoda

OPTIONS = ("bench", "kv-cache", "--lengths", "96,40", "--samples", "5", "--threads", "1")


def test_the_report(pagoda: Pagoda, tiny_model: Path) -> None:
    done = pagoda(*OPTIONS, tiny_model, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"]
    short, long = report["lengths"]
    assert (short["tokens"], long["tokens"], long["prompt_tokens"]) == (40, 96, 16)
    assert (long["compared"][0], long["compared"][-1]) == (17, 96)
    assert len(long["compared"]) == long["compared_tokens"] > short["compared_tokens"] >= 5
    for length in (short, long):
        assert (length["equal_ids"], length["equal_logprobs"]) == (True, True)
        assert length["recomputed"]["ms_is_interpolated"]
        assert 0 < length["cached"]["ms_per_token"] < length["cached"]["ms"]
    # A token takes about the same at both lengths with the cache, and in proportion to the length without.
    assert long["cached"]["flops_per_token"] < 1.5 * short["cached"]["flops_per_token"]
    assert long["recomputed"]["flops_per_token"] > 2 * short["recomputed"]["flops_per_token"]
    assert long["recomputed"]["flops_per_token"] > 50 * long["cached"]["flops_per_token"]
    assert long["recomputed"]["flops"] > 20 * long["cached"]["flops"]


def test_a_lost_block_changes_the_very_next_token(pagoda: Pagoda, tiny_model: Path) -> None:
    found = json.loads(pagoda(*OPTIONS, tiny_model, "--json").stdout)["damage"]
    assert (found["tokens"], found["overwritten_positions"], found["overwritten_after_token"]) == (96, [0, 15], 32)
    assert found["first_changed_logprob"] == 33
    assert 33 <= found["first_changed_token"] <= 96
    assert found["text"] != found["damaged_text"]


def test_paged_allocation_runs_more_at_once_and_wastes_less(pagoda: Pagoda, tiny_model: Path) -> None:
    found = json.loads(pagoda(*OPTIONS, tiny_model, "--json").stdout)["allocation"]
    paged, contiguous = found["paged"], found["contiguous"]
    assert found["equal_outputs"]
    assert paged["admitted_at_once"] > contiguous["admitted_at_once"] >= 1
    assert paged["mean_running"] > contiguous["mean_running"]
    assert paged["steps"] < contiguous["steps"]
    assert paged["wasted_share"] < contiguous["wasted_share"] < 1
    assert (paged["steps_blocked_by_gaps"], contiguous["preemptions"]) == (0, 0)


def test_tables_charts_and_a_page(pagoda: Pagoda, tiny_model: Path, tmp_path: Path) -> None:
    page = tmp_path / "kv.html"
    done = pagoda(*OPTIONS, tiny_model, "--html", page)
    assert done.returncode == 0, done.stderr
    for words in ("Equal ids in both ways", "Time of each token", "One block lost", "contiguous", "with the cache"):
        assert words in done.stdout
    written = page.read_text(encoding="utf-8")
    assert written.count("<svg") == 3
    assert "One block lost" in written
    assert "<script" not in written


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--lengths", "17"), "--lengths: got '17', must be integers of at least 18"),
        (("--lengths", "64,x"), "--lengths: got '64,x', must be integers"),
        (("--lengths", "64,300"), "--lengths: got 300, must be at most 256, the longest sequence here"),
        (("--samples", "1"), "--samples: got 1, must be at least 2"),
        (("--prefix-cache",), "--prefix-cache: got True, must be left out"),
        (("--kv-allocation", "contiguous"), "--kv-allocation: got 'contiguous', must be left out"),
        (("--kv-allocation", "contiguous", "--prefix-cache"), "--prefix-cache: got True, must be off or left out"),
    ],
)
def test_refusals(pagoda: Pagoda, tiny_model: Path, options: tuple[str, ...], sentence: str) -> None:
    done = pagoda("bench", "kv-cache", tiny_model, *options)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_difference_is_told_from_the_length_on_where_it_was_found() -> None:
    comparison = Comparison(
        first=3,
        last=6,
        token_ids=[1, 2, 3, 4],
        cached_seconds=np.array([0.5, 0.1, 0.1, 0.3]),
        measured={3: 1.0, 4: 2.0, 6: 4.0},
        unequal=[6],
        unequal_logprobs=[4],
        cached_costs=np.array([[1.0, 2.0]] * 4),
        recomputed_costs=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0], [4.0, 2.0]]),
    )
    short, long = report_of(comparison, (4, 6))
    assert (short["equal_ids"], short["equal_logprobs"]) == (True, False)
    assert (long["equal_ids"], long["equal_logprobs"]) == (False, False)
    assert not short["recomputed"]["ms_is_interpolated"]
    assert long["recomputed"]["ms_is_interpolated"]
    assert long["recomputed"]["ms"] == pytest.approx(1000 * (1 + 2 + 3 + 4))
    assert long["recomputed"]["flops"] == 10
    assert long["cached"]["ms"] == pytest.approx(1000)
    assert long["cached"]["ms_per_token"] == pytest.approx(200)


def test_a_chart_of_characters() -> None:
    chart = Chart(
        name="x",
        title="Growth",
        description="",
        x=Axis("tokens", 0, 10),
        y=Axis("ms", 0, 4),
        series=[
            Series("dots", [Point(0, 0), Point(10, 4)], "points"),
            Series("flat", [Point(0, 1), Point(10, 1)]),
        ],
    )
    assert terminal_chart(chart, width=11, height=5).splitlines() == [
        "Growth (ms)",
        "4 |          o",
        "3 |",
        "2 |",
        "1 |xxxxxxxxxxx",
        "0 |o",
        "  +-----------",
        "   0 2 4 6 8 10",
        "   tokens   o dots   x flat",
    ]
