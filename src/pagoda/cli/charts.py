"""Charts as plain data, and as SVG that reads well on a phone, in light and in dark, without a script.

A chart is a sentence too: its description says for who cannot see it what the picture shows, and every bar and line carries
its name. `STYLE` has the colours, as CSS variables that a page may set otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 480, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 46
COLOURS = ("#2a63c8", "#d2691e", "#0f8a6d", "#8a55c2", "#7d8797", "#d3d9e2")

STYLE = """
.chart{display:block;width:100%;height:auto;font:13px system-ui,sans-serif}
.chart text{fill:var(--ink,#1f2430)}
.chart .quiet,.chart .tick{fill:var(--quiet,#5d6675)}
.chart .tick{font-size:11.5px}
.chart .grid{stroke:var(--line,#dfe3ea);stroke-width:1}
.chart .axis{stroke:var(--quiet,#5d6675);stroke-width:1.2}
.chart .halo{stroke:var(--card,#fff);stroke-width:4;stroke-linejoin:round;paint-order:stroke}
.chart .line{fill:none;stroke-width:2.4;stroke-linejoin:round;stroke-linecap:round}
.chart .dashed{stroke-dasharray:5 5}
.chart .band{stroke:none;opacity:.18}
.chart .ring{fill:var(--card,#fff);stroke-width:2}
""" + "\n".join(
    f".chart .s{i}{{stroke:var(--c{i},{c})}}.chart .f{i}{{fill:var(--c{i},{c})}}" for i, c in enumerate(COLOURS)
)


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, both shown; log: in powers of ten (low is positive)."""

    title: str
    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, title: str, values: Iterable[float], log: bool = False) -> Axis:
        """An axis with room for all values. A linear one begins at 0. Raises ValueError for no values, or none that a
        logarithm is of."""
        found = [value for value in values if value > 0] if log else list(values)
        if not found:
            raise ValueError(f"nothing to show on the axis {title!r}")
        low, high = min(found), max(found)
        if log:
            return cls(title, low / 1.4, high * 1.4, True)
        step = _step(high or 1.0)
        return cls(title, 0.0, math.ceil((high or 1.0) * 1.02 / step) * step)

    def place(self, value: float) -> float:
        """Where a value is, from 0 at `low` to 1 at `high`; what lies outside is at the end."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Round values within the axis, few enough to be read."""
        if not self.log:
            step = _step(self.high - self.low)
            return [self.low + step * i for i in range(int((self.high - self.low) / step + 1e-9) + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil((last - first) / 6))
        steps = (1,) if last - first > 2 else (1, 2, 5) if self.high / self.low > 2.5 else tuple(range(1, 10))
        values = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
        return [value for value in values if self.low <= value <= self.high]


@dataclass(frozen=True, slots=True)
class Point:
    """label: words beside it. below: they stand under the point, where a line leaves no room above it."""

    x: float
    y: float
    label: str = ""
    below: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One line or set of points. hollow: points that are drawn as rings. A series none of whose points has a label gets a
    line in the legend. colour: an index of `COLOURS`."""

    name: str
    points: Sequence[Point]
    kind: Literal["line", "dashed", "points"] = "line"
    colour: int = 0
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """What lies between two curves: (x of the lower, its y), and the same for the upper."""

    name: str
    lower: Sequence[Point]
    upper: Sequence[Point]
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Chart:
    """name: unique on its page, of letters and hyphens. description: the whole picture in words."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    bands: Sequence[Band] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a stack: its size, and the size in words."""

    name: str
    size: float
    shown: str
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts of one whole, on top of each other, against what there is (`capacity`, with its words)."""

    name: str
    title: str
    description: str
    segments: Sequence[Segment]
    capacity: float
    capacity_shown: str


def svg(chart: Chart | Stack) -> str:
    """The picture, to stand in an HTML page that has `STYLE`."""
    body, height = _stack(chart) if isinstance(chart, Stack) else _chart(chart)
    name = escape(chart.name)
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {height}" aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{escape(chart.title)}</title><desc id="{name}-text">{escape(chart.description)}</desc>'
        f"{body}</svg>"
    )


def shown_number(value: float) -> str:
    """A tick: "0.5", "20", "4k", "3M"."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:,.10g}"


def _chart(chart: Chart) -> tuple[str, int]:
    """The picture's inside, and its height."""

    def at(point: Point) -> tuple[float, float]:
        x = LEFT + chart.x.place(point.x) * (WIDTH - LEFT - RIGHT)
        return x, HEIGHT - BOTTOM - chart.y.place(point.y) * (HEIGHT - TOP - BOTTOM)

    parts = [_axes(chart)]
    for band in chart.bands:
        outline = [at(point) for point in (*band.lower, *reversed(band.upper))]
        parts.append(f'<path class="band f{band.colour}" d="{_path(outline)}Z"/>')
    for series in chart.series:
        places = [at(point) for point in series.points]
        if series.kind != "points":
            parts.append(f'<path class="{_line_class(series)}" d="{_path(places)}"/>')
            continue
        for (x, y), point in zip(places, series.points, strict=True):
            said = escape(f"{series.name}: {point.label}" if point.label else series.name)
            parts.append(f'<circle {_dot(series)} cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{said}</title></circle>')
    # Words go over all lines.
    labelled = [point for series in chart.series for point in series.points if point.label]
    parts += [_label(*at(point), point) for point in labelled]
    legend = _legend(chart)
    return "".join(parts + legend), HEIGHT + 19 * len(legend)


def _axes(chart: Chart) -> str:
    bottom, right, parts = HEIGHT - BOTTOM, WIDTH - RIGHT, []
    for value in chart.y.ticks():
        y = bottom - chart.y.place(value) * (bottom - TOP)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{shown_number(value)}</text>'
        )
    for value in chart.x.ticks():
        x = LEFT + chart.x.place(value) * (right - LEFT)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{shown_number(value)}</text>'
        )
    parts.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    x, y = (LEFT + right) / 2, (TOP + bottom) / 2
    parts.append(f'<text class="quiet" x="{x}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x.title)}</text>')
    turned = f'text-anchor="middle" transform="translate(14 {y}) rotate(-90)"'
    parts.append(f'<text class="quiet" {turned}>{escape(chart.y.title)}</text>')
    return "".join(parts)


def _label(x: float, y: float, point: Point) -> str:
    """Beside its point, on the side where there is room."""
    anchor, shift = ("start", 8) if x < WIDTH * 0.62 else ("end", -8)
    down = 19 if point.below or y < TOP + 20 else -9
    return (
        f'<text class="halo" x="{x + shift:.1f}" y="{y + down:.1f}" text-anchor="{anchor}">{escape(point.label)}</text>'
    )


def _legend(chart: Chart) -> list[str]:
    """One line each for what has no label of its own, under the axis."""
    lines: list[tuple[str, str]] = []
    for series in chart.series:
        if series.points and not any(point.label for point in series.points):
            if series.kind == "points":
                lines.append((f'<circle {_dot(series)} cx="{LEFT + 12}" cy="-4" r="4.5"/>', series.name))
            else:
                lines.append((f'<path class="{_line_class(series)}" d="M{LEFT} -4H{LEFT + 24}"/>', series.name))
    for band in chart.bands:
        lines.append((f'<rect class="band f{band.colour}" x="{LEFT}" y="-10" width="24" height="12"/>', band.name))
    return [
        f'<g transform="translate(0 {HEIGHT + 14 + 19 * row})">{mark}'
        f'<text class="quiet" x="{LEFT + 32}" y="0">{escape(name)}</text></g>'
        for row, (mark, name) in enumerate(lines)
    ]


def _line_class(series: Series) -> str:
    return f"line s{series.colour}" + (" dashed" if series.kind == "dashed" else "")


def _dot(series: Series) -> str:
    return f'class="ring s{series.colour}"' if series.hollow else f'class="f{series.colour}"'


def _stack(stack: Stack) -> tuple[str, int]:
    """One bar from left to right, and under it a line for each part, with its share of what there is. And the height."""
    whole = max(stack.capacity, sum(segment.size for segment in stack.segments)) or 1.0
    scale, x, y, parts = (WIDTH - 6) / whole, 3.0, 88, []
    for segment in stack.segments:
        width, said = segment.size * scale, escape(f"{segment.name}: {segment.shown}")
        bar = f'x="{x:.2f}" y="14" width="{width:.2f}" height="46"'
        share = f"{segment.size / stack.capacity:.1%}" if stack.capacity else ""
        parts.append(f'<rect class="f{segment.colour}" {bar}><title>{said}</title></rect>')
        parts.append(
            f'<rect class="f{segment.colour}" x="3" y="{y - 11}" width="13" height="13" rx="3"/>'
            f'<text x="25" y="{y}">{escape(segment.name)}</text>'
            f'<text x="{WIDTH - 66}" y="{y}" text-anchor="end">{escape(segment.shown)}</text>'
            f'<text class="quiet" x="{WIDTH - 3}" y="{y}" text-anchor="end">{share}</text>'
        )
        x, y = x + width, y + 25
    parts.append(f'<path class="axis" d="M{3 + stack.capacity * scale:.2f} 5V69"/>')
    parts.append(f'<text class="quiet" x="3" y="{y + 4}">{escape(stack.capacity_shown)}</text>')
    return "".join(parts), y + 14


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _step(span: float) -> float:
    """1, 2 or 5 times a power of ten, so that a span has 4 to 8 of them."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(step * power for step in (1, 2, 5, 10) if span / (step * power) <= 8)
