"""The charts of `pagoda bench kv-cache`: what a token takes, and what all of them take, with the cache and without."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from pagoda.cli.bench_kv_recompute import CACHED_TOKENS, Comparison
from pagoda.cli.charts import Axis, Chart, Point, Series
from pagoda.cli.terminal_chart import thinned

MOST_POINTS = 60
LENGTH = "tokens of the sequence"
CACHED, RECOMPUTED = "with the cache", "recomputed every step"


def kv_charts(comparison: Comparison) -> list[Chart]:
    """Milliseconds of each token, milliseconds up to each, and FLOPs up to each."""
    tokens = list(range(comparison.first, comparison.last + 1))
    cached, recomputed = comparison.cached_seconds, comparison.recomputed_seconds()
    smooth = [1e3 * float(np.median(cached[max(0, i - CACHED_TOKENS + 1) : i + 1])) for i in range(len(tokens))]
    measured = [Point(token, 1e3 * seconds) for token, seconds in comparison.measured.items()]
    flops = (comparison.cached_costs[:, 0].cumsum(), comparison.recomputed_costs[:, 0].cumsum())
    return [
        _chart(
            "each-token",
            "Time of each token",
            "milliseconds",
            "To be expected: flat with the cache; in proportion to the length without.",
            cached=thinned([Point(token, y) for token, y in zip(tokens, smooth, strict=True)], MOST_POINTS),
            recomputed=measured,
            kind="points",
        ),
        _chart(
            "all-tokens",
            "Time of all tokens so far",
            "seconds, logarithmic",
            "To be expected: in proportion to the length with the cache; to its square without, for long sequences.",
            cached=_sums(tokens, cached.cumsum()),
            recomputed=_sums(tokens, recomputed.cumsum()),
            log=True,
        ),
        _chart(
            "all-flops",
            "FLOPs of all tokens so far",
            "GFLOP, logarithmic",
            "Worked out: about in proportion to the length with the cache; to its square without.",
            cached=_sums(tokens, flops[0] / 1e9),
            recomputed=_sums(tokens, flops[1] / 1e9),
            log=True,
        ),
    ]


def _sums(tokens: list[int], sums: npt.NDArray[np.float64]) -> list[Point]:
    return thinned([Point(token, float(y)) for token, y in zip(tokens, sums, strict=True)], MOST_POINTS)


def _chart(
    name: str,
    title: str,
    unit: str,
    description: str,
    *,
    cached: list[Point],
    recomputed: list[Point],
    kind: Literal["line", "points"] = "line",
    log: bool = False,
) -> Chart:
    everything = [*cached, *recomputed]
    return Chart(
        name=name,
        title=title,
        description=description,
        x=Axis.over(LENGTH, [point.x for point in everything], log=log),
        y=Axis.over(unit, [point.y for point in everything], log=log),
        series=[
            Series(RECOMPUTED, recomputed, kind, colour=1),
            Series(CACHED, cached, "line", colour=0),
        ],
    )
