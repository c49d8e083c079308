"""The charts of a plan: where the memory goes, the roofline, and throughput against latency."""

from __future__ import annotations

from pagoda.cli.charts import Axis, Band, Chart, Point, Segment, Series, Stack
from pagoda.cli.plan_text import both_sizes, duration, rate, requests, significant, verdict
from pagoda.planning.plan import Plan, StepBound, ThroughputPoint


def memory_stack(plan: Plan) -> Stack:
    """Weights, KV cache, workspace, what is left and what is kept back, against the memory that there is."""
    parts = (
        ("weights", plan.weight_bytes, 0),
        ("KV cache", plan.kv_bytes_total, 1),
        ("workspace", plan.workspace_bytes, 3),
        ("left", max(0, plan.left_bytes), 5),
        ("kept back", plan.memory_bytes - plan.budget_bytes, 4),
    )
    return Stack(
        name="memory",
        title="Memory",
        description=verdict(plan),
        segments=[Segment(name, size, both_sizes(size), colour) for name, size, colour in parts if size],
        capacity=plan.memory_bytes,
        capacity_shown=f"The line: {both_sizes(plan.memory_bytes)}, all there is.",
    )


def roofline(plan: Plan) -> Chart:
    """FLOP/s that can be reached at an intensity (Williams, Waterman and Patterson, 2009), with decode and prefill on it."""
    decode, prefill = plan.decode, plan.prefill
    peak = prefill.flops / prefill.compute_seconds
    bandwidth = peak / plan.ridge
    dots = [point.bound for point in plan.throughput if point.fits]
    intensities = [bound.intensity for bound in (decode, prefill, *dots)] + [plan.ridge]
    x = Axis.over("FLOP per byte moved", [min(intensities) / 2, 2 * max(intensities)], log=True)

    def at(bound: StepBound, label: str = "") -> Point:
        return Point(bound.intensity, min(peak, bound.intensity * bandwidth), label, below=True)

    roof = [Point(x.low, x.low * bandwidth), Point(plan.ridge, peak), Point(x.high, peak)]
    return Chart(
        name="roofline",
        title="Roofline",
        description=(
            f"At most {significant(peak / 1e12)} TFLOP/s and {significant(bandwidth / 1e9)} GB/s, which meet at the ridge of "
            f"{significant(plan.ridge)} FLOP/B. The decode step has {significant(decode.intensity)} FLOP/B and is bound by "
            f"{decode.limit}; prefill has {significant(prefill.intensity)} and is bound by {prefill.limit}."
        ),
        x=x,
        y=Axis.over("FLOP/s at most", [*(point.y for point in roof), 1.6 * peak], log=True),
        series=[
            Series("what the hardware permits", roof, colour=4),
            Series(
                "the ridge", [Point(plan.ridge, peak, f"ridge {significant(plan.ridge)}")], "points", 4, hollow=True
            ),
            Series("decode of other numbers of requests", [at(bound) for bound in dots], "points", 0, hollow=True),
            Series("decode", [at(decode, f"decode of {requests(plan.concurrency)}")], "points", 0),
            Series("prefill", [at(prefill, "prefill")], "points", 1),
        ],
    )


def throughput_against_latency(plan: Plan) -> Chart | None:
    """Each batch as a point: what a user waits for a token, and what all users together get. None for less than two."""
    points = plan.throughput
    if len(points) < 2:
        return None
    estimated = [point for point in points if point.estimate_seconds]
    bounds = [_point(point, point.bound.seconds) for point in points]
    middle, lower, upper = (
        [_point(point, seconds) for point, seconds in _estimates(estimated, which)] for which in range(3)
    )
    everything = [*bounds, *middle, *lower, *upper]
    fitting = [_point(point, point.bound.seconds) for point in points if point.fits]
    last = max((point for point in points if point.fits), key=lambda point: point.batch, default=None)
    series = [
        Series("bound", bounds, "dashed", 4),
        Series("bound, fits", _labelled(fitting, last), "points", 4),
    ]
    bands = []
    if len(middle) > 1:
        series.append(Series("estimate", middle, "line", 0))
        bands.append(Band("estimate, 90% of cases", lower, upper, 0))
    best = (
        f" {requests(last.batch)} that fit together get at most {rate(last.tokens_per_second)} tokens/s."
        if last
        else ""
    )
    return Chart(
        name="throughput",
        title="Throughput against latency",
        description=(
            f"Decode at {plan.context:,} tokens of context. One request gets at most {rate(points[0].tokens_per_second)} "
            f"tokens/s, a token each {duration(points[0].bound.seconds)}.{best}"
        ),
        x=Axis.over("milliseconds a token, for each request", [point.x for point in everything], log=True),
        y=Axis.over("tokens/s, all requests together", [point.y for point in everything], log=True),
        series=series,
        bands=bands,
    )


def plan_charts(plan: Plan) -> list[Chart | Stack]:
    found = (memory_stack(plan), roofline(plan), throughput_against_latency(plan))
    return [chart for chart in found if chart is not None]


def _point(point: ThroughputPoint, seconds: float) -> Point:
    return Point(1e3 * seconds, point.batch / seconds)


def _estimates(points: list[ThroughputPoint], which: int) -> list[tuple[ThroughputPoint, float]]:
    """With the expected, the low or the high end of each estimate."""
    found = [(point, point.estimate_seconds) for point in points]
    return [(point, (e.expected, e.low, e.high)[which]) for point, e in found if e is not None]


def _labelled(points: list[Point], last: ThroughputPoint | None) -> list[Point]:
    """The first and the last with the requests that they stand for."""
    if not points or last is None:
        return points
    labelled = [*points]
    labelled[-1] = Point(points[-1].x, points[-1].y, requests(last.batch))
    if len(points) > 1:
        labelled[0] = Point(points[0].x, points[0].y, "1 request", below=True)
    return labelled
