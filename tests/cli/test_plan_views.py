"""A plan as people meet it: in the terminal, as a page, as a picture, as JSON; each with every figure, and nothing invented."""

from __future__ import annotations

import json
import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pagoda.cli.output_file import output_file
from pagoda.cli.plan_html import plan_page
from pagoda.cli.plan_png import plan_picture
from pagoda.cli.plan_text import duration, interval, significant, thinned
from pagoda.cli.plan_view import show
from pagoda.cli.planning_report import plan_report
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.planning.plan import Interval
from tests.cli.plans import plan_that_does_not_fit, textbook_plan

VOID = {"meta", "br", "hr", "img", "input", "link", "path", "rect", "line", "circle"}
FIGURES = (
    "7,000,000,000 parameters", "13.04 GiB", "14.00 GB", "16.00 GiB", "524,288 B a token", "54.2%",
    "0.718 ms", "15.6 ms", "18.0 ms (16.0 to 21.0)", "91.9 ms", "memory", "7.18", "156", "1,026", "53", "6,856",
    "int4, fp16", "fp32, fp32", "no rate known", "2 × 32 layers × 32 heads × 128 × 2 B = 524,288 B/token",
    "Batch more: memory binds.", "pagoda serve llama-7b --max-model-len 2048 --max-num-seqs 16", "NVIDIA's datasheet",
    "measured on a bench",
    "measured on a bench",
)  # fmt: skip


class Page(HTMLParser):
    """Fails on a tag that is closed without being open, or the other way round; gathers words and what is fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_terminal_shows_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    show(textbook_plan(), formulas=True)
    shown = capsys.readouterr().out
    assert [figure for figure in FIGURES if figure not in shown] == []
    assert "Fits: 16 requests" in shown
    assert "64 (does not fit)" in shown
    assert "bound" in shown and "estimate" in shown  # noqa: PT018
    assert "…" not in shown
    show(textbook_plan(), formulas=False)
    assert "524,288 B/token" not in capsys.readouterr().out


def test_a_narrow_terminal_loses_no_figure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    show(textbook_plan(), formulas=True)
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "NVIDIA's" in shown


def test_what_does_not_fit_is_said_first_with_its_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    show(plan_that_does_not_fit(), formulas=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith(
        "DOES NOT FIT: 16 requests of 2,048 tokens need 29.50 GiB (31.68 GB), 7.62 GiB (8.18 GB) more"
    )
    assert any(line.startswith("  --context 1024") and line.endswith("Half of the context.") for line in lines)


def test_no_estimate_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    plan = textbook_plan()
    points = tuple(point.__class__(point.batch, point.bound, None, point.fits) for point in plan.throughput)
    show(textbook_plan(throughput=points, decode_estimate=None), formulas=False)
    shown = capsys.readouterr().out
    assert "No estimate: nothing is known of this engine on this device" in shown
    assert "estimate: step" not in shown


@pytest.mark.parametrize("fits", [True, False])
def test_the_page_is_whole_and_needs_nothing_else(fits: bool) -> None:
    text = plan_page(textbook_plan() if fits else plan_that_does_not_fit())
    page = Page(text)
    words = " ".join(" ".join(page.words).split())
    assert [figure for figure in FIGURES if figure not in words] == ([] if fits else ["6,856"])
    assert not {"script", "link", "iframe", "img"} & page.tags
    assert page.fetched == []
    assert "url(" not in text
    assert "://" not in text
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text
    assert text.count("<svg") == 3
    assert ("DOES NOT FIT" in words) is not fits
    assert ("--weight-format int4" in words) is not fits


def test_names_from_outside_stay_text() -> None:
    hostile = '"><script>alert(1)</script>{{ plan }}{% raw %}'
    text = plan_page(textbook_plan(model=hostile, recommendation=hostile, serve_command=hostile))
    page = Page(text)
    assert "script" not in page.tags
    assert sum(hostile in word for word in page.words) >= 3


def test_json_has_what_others_build_on() -> None:
    report = plan_report(textbook_plan())
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert (report["weight_bytes"], report["kv_bytes_per_token"], report["kv_bytes_total"]) == (14e9, 524_288, 16 << 30)
    assert report["decode_compute_ms"] == pytest.approx(1e3 * 16 * 14e9 / 312e12)
    assert report["decode_memory_ms"] == pytest.approx(1e3 * (14e9 + (16 << 30)) / 2e12)
    assert report["prefill_ms"] == report["prefill_least_ms"] == pytest.approx(1e3 * 2048 * 14e9 / 312e12)
    assert (report["decode_bound"], report["prefill_bound"]) == ("memory", "compute")
    assert (report["max_concurrency"], report["max_context"], report["fits"]) == (53, 6856, True)
    assert report["decode_estimate_ms"] == {"low": 16.0, "expected": 18.0, "high": 21.0}
    assert report["prefill_estimate_ms"] is None
    assert report["kv_share_of_memory_in_use"] == pytest.approx(0.542, abs=5e-4)
    assert report["throughput"][-1]["batch"] == 64
    assert report["throughput"][-1]["fits"] is False
    assert report["throughput"][0]["tokens_per_second"] == pytest.approx(1e3 / report["throughput"][0]["least_ms"])
    assert report["formats"][2]["decode_least_ms"] is None
    assert report["formulas"][0]["formula"] == "2 × 32 layers × 32 heads × 128 × 2 B = 524,288 B/token"


def test_the_picture_is_a_png_whatever_the_names_are() -> None:
    picture = plan_picture(textbook_plan(model=r"$\frac{1}$ and $x"))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (2700, 780)
    assert len(set(picture)) > 200  # something is drawn


def test_without_matplotlib_one_sentence_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagoda.cli.charts_png.find_spec", lambda name: None)
    with pytest.raises(PagodaError, match=r"matplotlib, which is not installed: pip install 'matplotlib>=3.9'"):
        plan_picture(textbook_plan())


def test_figures_have_three_digits_and_no_exponent() -> None:
    values = (0.0449, 7.0, 9.999, 0.000123, 1250.0, 312e9, 0.0, 3.2e-9, -1.5)
    assert [significant(value) for value in values] == [
        "0.0449", "7.00", "10.0", "0.000123", "1,250", "312,000,000,000", "0", "3.20e-09", "-1.50",
    ]  # fmt: skip
    assert (duration(44.87e-6), duration(0.007), duration(1.25)) == ("0.0449 ms", "7.00 ms", "1.25 s")
    assert interval(Interval(1.0, 2.0, 3.0)) == "2.00 s (1.00 to 3.00)"


def test_long_tables_keep_their_ends_and_the_last_that_fits() -> None:
    point = textbook_plan().throughput[0]
    points = [point.__class__(batch, point.bound, None, batch <= 77) for batch in range(1, 101)]
    batches = [shown.batch for shown in thinned(points)]
    assert len(batches) <= 16
    assert {1, 77, 100} <= set(batches)
    assert batches == sorted(batches)


def test_an_old_file_is_replaced_and_an_unwritten_new_one_goes(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("long before")
    for path in (old, new):
        with pytest.raises(KeyError), output_file("--html", str(path)):
            raise KeyError
    assert old.read_text() == "long before"
    assert not new.exists()
    with output_file("--html", str(old)) as file:
        assert file is not None
        file.write(b"now")
    assert old.read_text() == "now"
    with output_file("--html", None) as file:
        assert file is None


@pytest.mark.parametrize(
    ("name", "reason"), [("", "an ordinary file"), ("no/such/dir", "No such file"), ("\0", "name of a file")]
)
def test_what_cannot_be_written_is_refused_at_once(tmp_path: Path, name: str, reason: str) -> None:
    path = f"{tmp_path}/{name}" if name != "\0" else name
    with pytest.raises(InvalidValueError, match=reason) as refused, output_file("--html", path):
        pytest.fail("opened")
    assert refused.value.field == "--html"
