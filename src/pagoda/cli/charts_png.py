"""Charts as one picture, for `--png FILE`. Drawn by matplotlib, which the extra [plot] brings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pagoda.cli.charts import COLOURS, Chart, Stack, shown_number
from pagoda.errors import PagodaError

COLUMN_INCHES, DOTS_PER_INCH = 6.0, 150


def check_matplotlib() -> None:
    """Raises `PagodaError`, with the command that installs it, where it is missing. Imports nothing."""
    if find_spec("matplotlib") is None:
        raise PagodaError("--png needs matplotlib, which is not installed: pip install 'matplotlib>=3.9'")


def charts_picture(title: str, charts: Sequence[Chart | Stack], software: str) -> bytes:
    """The PNG file, the charts side by side. software: what made it."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(COLUMN_INCHES * len(charts), 5.2), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white"
    )
    FigureCanvasAgg(figure)  # no display, and none of pyplot's global state
    # What comes from outside is text, and never mathematics, which "$" would begin.
    figure.suptitle(_plain(title), fontsize=12)
    for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
        axes.set_title(_plain(chart.title), loc="left", fontweight="bold", fontsize=11)
        if isinstance(chart, Stack):
            _draw_stack(axes, chart)
        else:
            _draw(axes, chart)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": software})
    return picture.getvalue()


def _draw_stack(axes: Any, stack: Stack) -> None:
    bottom, scale = 0.0, 2.0**30
    for segment in stack.segments:
        size = segment.size / scale
        label = _plain(f"{segment.name}: {segment.shown}")
        axes.bar([0], [size], bottom=bottom, width=0.5, color=COLOURS[segment.colour], label=label)
        bottom += size
    axes.axhline(stack.capacity / scale, color="black", linewidth=1.2)
    axes.set(ylabel="GiB", xticks=[], xlim=(-0.5, 0.5), ylim=(0, 1.32 * max(bottom, stack.capacity / scale)))
    axes.set_xlabel(_plain(stack.capacity_shown))
    axes.legend(loc="upper center", fontsize=8.5, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw(axes: Any, chart: Chart) -> None:
    for band in chart.bands:
        outline = [*band.lower, *reversed(band.upper)]
        axes.fill(
            [p.x for p in outline],
            [p.y for p in outline],
            color=COLOURS[band.colour],
            alpha=0.18,
            linewidth=0,
            label=band.name,
        )
    for series in chart.series:
        x, y, colour = [p.x for p in series.points], [p.y for p in series.points], COLOURS[series.colour]
        if series.kind == "points":
            axes.plot(x, y, "o", color=colour, markerfacecolor="white" if series.hollow else colour, label=series.name)
        else:
            axes.plot(x, y, "-" if series.kind == "line" else "--", color=colour, label=series.name)
        for point in series.points:
            if point.label:
                place = {"xytext": (7, -13 if point.below else 6), "textcoords": "offset points", "fontsize": 9}
                axes.annotate(_plain(point.label), (point.x, point.y), **place)
    for axis, name in ((chart.x, "x"), (chart.y, "y")):
        axes.set(**{f"{name}scale": "log" if axis.log else "linear", f"{name}lim": (axis.low, axis.high)})
        axes.set(**{f"{name}label": _plain(axis.title)})
        ticks = axis.ticks()
        getattr(axes, f"set_{name}ticks")(ticks, [shown_number(value) for value in ticks])
        getattr(axes, f"{name}axis").minorticks_off()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="best")


def _plain(text: str) -> str:
    return text.replace("$", r"\$")
