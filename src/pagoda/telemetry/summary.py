"""StepSummary: rates, times and fractions over a stretch of steps, as benchmarks and metrics report them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from pagoda.telemetry.steps import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """A stretch of steps. What cannot be told, because no step was of that kind, is None.

    Steps come in two kinds: those that compute any prompt tokens, and pure decode steps. Prefill's rate is the prompt
    tokens over the time of the former (whose decode tokens ride along), decode's its tokens over that of the latter.
    decode_step_ms: the mean; p50, p95, p99: the nearest rank. bytes_per_decode_step: the mean.
    fraction_of_bandwidth: of pure decode steps, fraction_of_peak_compute: of steps with prefill; weighted by time.
    """

    steps: int
    seconds: float
    overhead_seconds: float
    prefill_tokens: int
    decode_tokens: int
    preemptions: int
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    decode_step_ms: float | None
    decode_step_ms_p50: float | None
    decode_step_ms_p95: float | None
    decode_step_ms_p99: float | None
    bytes_per_decode_step: float | None
    flops_per_decode_step: float | None
    fraction_of_bandwidth: float | None
    fraction_of_peak_compute: float | None

    def as_dict(self) -> dict[str, float | int | None]:
        return asdict(self)


def summarize(records: Iterable[StepRecord]) -> StepSummary:
    """The summary of a stretch of steps, say `log.records` or `log.since(step)`."""
    steps = tuple(records)
    prefill = [record for record in steps if record.prefill_tokens]
    decode = [record for record in steps if not record.prefill_tokens]
    milliseconds = sorted(1e3 * record.seconds for record in decode)
    return StepSummary(
        steps=len(steps),
        seconds=math.fsum(record.seconds for record in steps),
        overhead_seconds=math.fsum(record.overhead_seconds for record in steps),
        prefill_tokens=sum(record.prefill_tokens for record in steps),
        decode_tokens=sum(record.decode_tokens for record in steps),
        preemptions=sum(record.num_preemptions for record in steps),
        prefill_tokens_per_second=_rate(prefill, sum(record.prefill_tokens for record in prefill)),
        decode_tokens_per_second=_rate(decode, sum(record.decode_tokens for record in decode)),
        decode_step_ms=math.fsum(milliseconds) / len(decode) if decode else None,
        decode_step_ms_p50=percentile(milliseconds, 50),
        decode_step_ms_p95=percentile(milliseconds, 95),
        decode_step_ms_p99=percentile(milliseconds, 99),
        bytes_per_decode_step=sum(record.num_bytes for record in decode) / len(decode) if decode else None,
        flops_per_decode_step=sum(record.flops for record in decode) / len(decode) if decode else None,
        fraction_of_bandwidth=_weighted([(record.fraction_of_bandwidth, record.seconds) for record in decode]),
        fraction_of_peak_compute=_weighted([(record.fraction_of_peak_compute, record.seconds) for record in prefill]),
    )


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile: the smallest value with at least `percent` % of all values at or below it."""
    if not ascending:
        return None
    return ascending[max(1, math.ceil(percent / 100 * len(ascending))) - 1]


def _rate(records: Sequence[StepRecord], tokens: int) -> float | None:
    seconds = math.fsum(record.seconds for record in records)
    return tokens / seconds if tokens and seconds > 0 else None


def _weighted(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    """The mean of fractions over time; None unless all are known."""
    known = [(fraction, seconds) for fraction, seconds in pairs if fraction is not None]
    total = math.fsum(seconds for _, seconds in known)
    if not known or len(known) < len(pairs) or total <= 0:
        return None
    return math.fsum(fraction * seconds for fraction, seconds in known) / total
