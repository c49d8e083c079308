"""Charts: axes with room and round ticks, and SVG that is well-formed, escaped, and tells its figures in words too."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from pagoda.cli.charts import COLOURS, STYLE, Axis, Band, Chart, Point, Segment, Series, Stack, shown_number, svg

SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart: Chart | Stack) -> ElementTree.Element:
    """HTML needs no namespace; a parser of XML does."""
    return ElementTree.fromstring(svg(chart).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def a_chart(**changes: object) -> Chart:
    series = [
        Series("limit", [Point(1, 10), Point(100, 1000)], "dashed", 4),
        Series("runs", [Point(1, 5, "one <b>"), Point(50, 400)], "points", 1),
    ]
    bands = [Band("90% of cases", [Point(1, 4), Point(50, 300)], [Point(1, 6), Point(50, 500)])]
    x, y = Axis.over("milliseconds", [1, 100], log=True), Axis.over("tokens/s", [0, 1000])
    return Chart("speed", "Speed & load", 'all of it "in words"', x, y, series, bands, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[3.0], [0.001, 0.002], [1, 7, 93], [5e11, 2e14], [1e-9, 1e9]])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_has_room_for_its_values_and_few_round_ticks(values: list[float], log: bool) -> None:
    axis = Axis.over("x", values, log)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert all(0 <= axis.place(value) <= 1 for value in values)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 10
    assert all(axis.low <= tick <= axis.high * (1 + 1e-9) for tick in ticks)
    leading = {round(tick / 10 ** math.floor(math.log10(tick) + 1e-9), 6) for tick in ticks if tick}
    assert all((10 * digit) % 1 == 0 for digit in leading)
    assert ticks == sorted(ticks)


def test_places_are_linear_or_logarithmic_and_stay_within() -> None:
    linear, log = Axis("x", 0, 10), Axis("x", 1, 100, log=True)
    assert (linear.place(5), linear.place(-1), linear.place(11)) == (0.5, 0.0, 1.0)
    assert (log.place(10), log.place(0.0)) == (pytest.approx(0.5), 0.0)


def test_an_axis_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="'seconds'"):
        Axis.over("seconds", [])
    with pytest.raises(ValueError, match="'seconds'"):
        Axis.over("seconds", [0.0, -1.0], log=True)
    assert Axis.over("seconds", [0.0]).high == pytest.approx(1.2)


def test_a_chart_is_well_formed_and_told_in_words() -> None:
    root = parsed(a_chart())
    assert root.get("role") == "img"
    named = {element.get("id"): element.text for element in root}
    assert [named[name] for name in (root.get("aria-labelledby") or "").split()] == [
        "Speed & load",
        'all of it "in words"',
    ]
    shown = texts(root)
    assert {"milliseconds", "tokens/s", "one <b>", "limit", "90% of cases", "1,000"} <= set(shown)
    assert "runs" not in shown  # its point speaks for it
    assert [title.text for title in root.iter(f"{SVG}title")][1:] == ["runs: one <b>", "runs"]
    assert "script" not in svg(a_chart())


def test_points_lie_where_their_values_say() -> None:
    circles = [circle for circle in parsed(a_chart()).iter(f"{SVG}circle") if circle.find(f"{SVG}title") is not None]
    (x1, y1), (x2, y2) = ((float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in circles)
    assert 62 < x1 < x2 < 466
    assert 12 < y2 < y1 < 274  # more is higher up
    # 400 of 1,200 against 5 of 1,200
    assert (274 - y2) / (274 - y1) == pytest.approx(80, rel=0.1)


def test_a_stack_is_in_proportion_and_has_every_figure() -> None:
    segments = [Segment("weights", 30, "30 GiB"), Segment("KV & more", 10, "10 GiB", 1)]
    root = parsed(Stack("memory", "Memory", "30 and 10 of 80", segments, 80, "80 GiB in all"))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    widths = [float(bar.get("width") or 0) for bar in bars]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)
    assert widths[0] == pytest.approx(474 * 30 / 80, rel=0.01)
    assert {"weights", "30 GiB", "37.5%", "KV & more", "10 GiB", "12.5%", "80 GiB in all"} <= set(texts(root))


def test_what_is_too_much_reaches_over_the_line() -> None:
    root = parsed(Stack("memory", "Memory", "too much", [Segment("weights", 200, "200")], 100, "100"))
    (bar,) = (rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None)
    line = next(path for path in root.iter(f"{SVG}path") if path.get("class") == "axis")
    assert float(bar.get("width") or 0) == pytest.approx(474)
    assert line.get("d") == "M240.00 5V69"


def test_every_colour_has_a_style() -> None:
    assert all(f".s{index}{{" in STYLE and f".f{index}{{" in STYLE for index in range(len(COLOURS)))


def test_ticks_are_short() -> None:
    assert [shown_number(v) for v in (0.5, 20, 1000, 40_000, 3e6, 2.5e12, 0.1 + 0.2)] == [
        "0.5", "20", "1,000", "40k", "3M", "2.5T", "0.3",
    ]  # fmt: skip
