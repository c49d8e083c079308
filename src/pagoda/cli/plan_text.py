"""A Plan in words and tables, the same for the terminal and for a page: what is said, and not how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.cli.planning_report import bytes_in_use
from pagoda.planning.ledger import binary_size, decimal_size
from pagoda.planning.plan import FormatChange, Interval, Plan, StepBound, ThroughputPoint

LIMITS = {"compute": "compute", "memory": "memory", "communication": "links"}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column is words, the others are figures. dim: rows of what is out of reach. note: what to know."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    dim: frozenset[int] = frozenset()
    note: str = ""


def headline(plan: Plan) -> str:
    """What was asked: "llama-7b on a100-40g"."""
    return f"{plan.model} on {devices(plan)}"


def devices(plan: Plan) -> str:
    return plan.device.name if plan.num_devices == 1 else f"{plan.num_devices:,} × {plan.device.name}"


def asked(plan: Plan) -> str:
    """The rest of the question, in one line."""
    parameters = f"{plan.num_parameters:,} parameters"
    if plan.active_parameters != plan.num_parameters:
        parameters += f" ({plan.active_parameters:,} active)"
    held = f"weights {plan.weight_format}, K and V {plan.kv_format}"
    return f"{parameters}; {held}; {requests(plan.concurrency)} of {plan.context:,} tokens"


def verdict(plan: Plan) -> str:
    """Whether it fits, with the figures."""
    used, budget = bytes_in_use(plan), plan.budget_bytes
    need = f"{requests(plan.concurrency)} of {plan.context:,} tokens"
    share = f"{both_sizes(budget)} that may be used ({budget / plan.memory_bytes:.0%} of memory)"
    if not plan.fits:
        verb = "needs" if plan.concurrency == 1 else "need"
        return f"DOES NOT FIT: {need} {verb} {both_sizes(used)}, {both_sizes(used - budget)} more than the {share}."
    own = " (the model's own limit)" if plan.max_context == plan.spec.context_length else ""
    takes = "takes" if plan.concurrency == 1 else "take"
    each = "the one request may be" if plan.concurrency == 1 else f"each of {plan.concurrency:,} requests may be"
    return (
        f"Fits: {need} {takes} {both_sizes(used)} of the {share}. At most {requests(plan.max_concurrency)} of this context "
        f"fit; {each} up to {plan.max_context:,} tokens long{own}."
    )


def memory(plan: Plan) -> Grid:
    used, blocks = bytes_in_use(plan), -(-plan.context // plan.block_size) * plan.block_size

    def row(name: str, size: int, note: str) -> tuple[str, ...]:
        return name, binary_size(size), decimal_size(size), f"{size / plan.memory_bytes:.1%}", note

    whole = f"{plan.concurrency:,} × {blocks:,} tokens in whole blocks of {plan.block_size}"
    tokens = f"{plan.kv_bytes_per_token:,} B a token; {whole}"
    seen = f"; {binary_size(plan.kv_bytes_seen)} within windows" if plan.kv_bytes_seen < plan.kv_bytes_total else ""
    return Grid(
        "Memory" + (f", all {plan.num_devices:,} devices together" if plan.num_devices > 1 else ""),
        ("", "GiB = 2^30 B", "GB = 10^9 B", "of all", "what it is"),
        (
            row("weights", plan.weight_bytes, f"{plan.num_parameters:,} parameters, {plan.weight_format}"),
            row("KV cache", plan.kv_bytes_total, tokens + seen),
            row("workspace", plan.workspace_bytes, "activations and buffers of the largest step"),
            row("in use", used, f"the KV cache is {plan.kv_bytes_total / used:.1%} of it"),
            row("left", plan.left_bytes, "of what may be used"),
            row("kept back", plan.memory_bytes - plan.budget_bytes, "for everything else (--memory-fraction)"),
            row("memory", plan.memory_bytes, f"{devices(plan)}; {plan.device.source or 'as given'}"),
        ),
    )


def times(plan: Plan) -> Grid:
    left_out = ", K and V left out" if plan.weights_only else ""
    steps = (
        (f"decode step, {requests(plan.concurrency)}{left_out}", plan.decode, plan.decode_estimate),
        (f"prefill, one prompt of {plan.context:,}", plan.prefill, plan.prefill_estimate),
    )
    return Grid(
        "Time: the bound is what the hardware permits, the estimate what an engine is expected to take",
        (
            "",
            "compute",
            "memory",
            *(("links",) if plan.num_devices > 1 else ()),
            "bound",
            "binds",
            "FLOP/B",
            "estimate",
        ),
        tuple(
            (
                name,
                duration(bound.compute_seconds),
                duration(bound.memory_seconds),
                *((duration(bound.communication_seconds),) if plan.num_devices > 1 else ()),
                duration(bound.seconds),
                LIMITS[bound.limit],
                significant(bound.intensity),
                interval(estimate),
            )
            for name, bound, estimate in steps
        ),
        note=f"{_moved(plan.decode)} The ridge is at {significant(plan.ridge)} FLOP/B: below it memory binds, above it "
        f"compute. {_turning(plan)}{_estimate_source(plan)}",
    )


def throughput(plan: Plan) -> Grid:
    estimated = any(point.estimate_seconds for point in plan.throughput)
    shown = thinned(plan.throughput)
    headers = ("requests at once", "bound: step", "tokens/s", "binds", "FLOP/B")
    rows = tuple(
        (
            f"{point.batch:,}" + ("" if point.fits else " (does not fit)"),
            duration(point.bound.seconds),
            rate(point.tokens_per_second),
            LIMITS[point.bound.limit],
            significant(point.bound.intensity),
            *((interval(point.estimate_seconds), _estimated_rate(point)) if estimated else ()),
        )
        for point in shown
    )
    return Grid(
        f"Decode at {plan.context:,} tokens of context",
        (*headers, "estimate: step", "tokens/s") if estimated else headers,
        rows,
        dim=frozenset(index for index, point in enumerate(shown) if not point.fits),
        note="" if estimated else "No estimate: nothing is known of this engine on this device (--calibration FILE).",
    )


def formats(plan: Plan) -> Grid:
    own = (plan.weight_format, plan.kv_format)

    def row(change: FormatChange) -> tuple[str, ...]:
        decode = change.decode
        return (
            f"{change.weight_format}, {change.kv_format}"
            + (" (now)" if (change.weight_format, change.kv_format) == own else ""),
            binary_size(change.weight_bytes),
            decimal_size(change.weight_bytes),
            f"{change.kv_bytes_per_token:,} B",
            f"{change.max_concurrency:,}",
            duration(decode.seconds) if decode else "no rate known",
            LIMITS[decode.limit] if decode else "",
            "yes" if change.fits else "NO",
        )

    return Grid(
        "Other formats, all else equal",
        ("weights, K and V", "weights", "weights", "KV a token", "most requests", "bound: step", "binds", "fits"),
        tuple(row(change) for change in plan.formats),
        dim=frozenset(index for index, change in enumerate(plan.formats) if not change.fits),
    )


def grids(plan: Plan) -> tuple[Grid, ...]:
    """All tables in the order in which they are read; those with nothing to say left out."""
    return tuple(grid for grid in (memory(plan), times(plan), throughput(plan), formats(plan)) if grid.rows)


def thinned(points: Sequence[ThroughputPoint], most: int = 14) -> list[ThroughputPoint]:
    """As many points as a table can take, the first and the last of those that fit among them."""
    if len(points) <= most:
        return list(points)
    every = -(-len(points) // (most - 2))
    fitting = [index for index, point in enumerate(points) if point.fits]
    wanted = {*range(0, len(points), every), len(points) - 1, *fitting[-1:]}
    return [points[index] for index in sorted(wanted)]


def requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"


def both_sizes(num_bytes: int) -> str:
    """ "12.55 GiB (13.48 GB)" """
    return f"{binary_size(num_bytes)} ({decimal_size(num_bytes)})"


def duration(seconds: float) -> str:
    """In milliseconds, to three digits, and in seconds from one on: "0.0449 ms", "7.00 ms", "1.25 s"."""
    return f"{significant(seconds)} s" if seconds >= 1 else f"{significant(1e3 * seconds)} ms"


def interval(estimate: Interval | None) -> str:
    """ "8.1 ms (7.9 to 8.8)" """
    if estimate is None:
        return "not known"
    scale, unit = (1.0, "s") if estimate.expected >= 1 else (1e3, "ms")
    low, expected, high = (significant(scale * value) for value in (estimate.low, estimate.expected, estimate.high))
    return f"{expected} {unit} ({low} to {high})"


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 1000 else significant(per_second)


def significant(value: float, digits: int = 3) -> str:
    """To so many digits, without an exponent where a person would not write one: "0.0449", "7.00", "1,250"."""
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e12:
        return f"{value:.{digits - 1}e}"
    power = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.999 is 10.0
    return f"{value:,.{max(0, digits - 1 - power)}f}"


def _moved(bound: StepBound) -> str:
    total = bound.weight_bytes + bound.kv_bytes
    flops = decimal_size(bound.flops).removesuffix("B").replace("k", "K") + "FLOP"
    return (
        f"The decode step computes {flops} and moves {decimal_size(total)}: {decimal_size(bound.weight_bytes)} of weights, "
        f"{decimal_size(bound.kv_bytes)} of K and V."
    )


def _turning(plan: Plan) -> str:
    batch = plan.compute_bound_from
    if batch is None:
        return "At this context no batch makes decode bound by compute: every request brings its own K and V to read."
    return f"Decode turns bound by compute at {requests(batch)}."


def _estimate_source(plan: Plan) -> str:
    if not plan.estimate_source:
        return ""
    return f" Estimates: 90% of measured steps lay within the interval; {plan.estimate_source}."


def _estimated_rate(point: ThroughputPoint) -> str:
    return rate(point.batch / point.estimate_seconds.expected) if point.estimate_seconds else ""
