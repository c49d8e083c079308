"""A chart drawn with characters, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil

from pagoda.cli.charts import Chart, Point, Series, shown_number

WIDTH, HEIGHT = 64, 14
# One for each series; of plain ASCII, which every terminal has.
MARKS = "ox+*#@"


def terminal_chart(chart: Chart, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Title, picture and legend; where series meet, the later one is seen. Lines end with a newline each."""
    cells = [[" "] * width for _ in range(height)]
    for mark, series in zip(MARKS, chart.series, strict=False):
        for x, y in _places(chart, series, width):
            cells[height - 1 - round(y * (height - 1))][round(x * (width - 1))] = mark
    labels = _at_ends([(chart.y.place(value), shown_number(value)) for value in chart.y.ticks()], height)
    margin = max(map(len, labels.values()), default=0)
    lines = [f"{chart.title} ({chart.y.title})"]
    for row, line in enumerate(cells):
        lines.append(f"{labels.get(height - 1 - row, ''):>{margin}} |{''.join(line)}".rstrip())
    lines.append(f"{'':>{margin}} +{'-' * width}")
    lines.append(f"{'':>{margin}}  {_ruler(chart, width)}")
    legend = "   ".join(f"{mark} {series.name}" for mark, series in zip(MARKS, chart.series, strict=False))
    lines.append(f"{'':>{margin}}  {chart.x.title}   {legend}")
    return "".join(f"{line}\n" for line in lines)


def _places(chart: Chart, series: Series, width: int) -> Iterator[tuple[float, float]]:
    """Where marks go, from 0 to 1 along each axis: at the points, or in each column that a line crosses."""
    points = [(chart.x.place(point.x), chart.y.place(point.y)) for point in series.points]
    if series.kind == "points":
        yield from points
        return
    for (x, y), (next_x, next_y) in pairwise(points):
        steps = max(1, ceil((next_x - x) * (width - 1)))
        for step in range(steps + 1):
            share = step / steps
            yield x + share * (next_x - x), y + share * (next_y - y)


def _at_ends(ticks: list[tuple[float, str]], height: int) -> dict[int, str]:
    """Row, counted from below → label; where two share a row, the first."""
    labels: dict[int, str] = {}
    for place, label in ticks:
        labels.setdefault(round(place * (height - 1)), label)
    return labels


def _ruler(chart: Chart, width: int) -> str:
    """The labels of the x axis, each beginning below its value; those without room are left out."""
    line = ""
    for value in chart.x.ticks():
        label, column = shown_number(value), round(chart.x.place(value) * (width - 1))
        if len(line) <= column:
            line = line.ljust(column) + label
        line += " "
    return line.rstrip()


def thinned(points: list[Point], most: int) -> list[Point]:
    """At most so many of them at even distances, the last included."""
    every = -(-len(points) // most) if points else 1
    return points[::-1][::every][::-1]
