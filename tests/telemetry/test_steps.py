"""Step records, the bounded log, and summaries."""

import json

import pytest

from pagoda.core.scheduler import Preemption
from pagoda.core.step import RequestKey, ScheduledRow, SchedulerOutput
from pagoda.planning.costs import StepCost
from pagoda.planning.hardware import Hardware
from pagoda.telemetry.steps import StepLog, StepRecord
from pagoda.telemetry.summary import percentile, summarize

LOST = Preemption(RequestKey("a", 0), 40, on_behalf_of=RequestKey("b", 0))


def record(step: int = 0, *, prefill: int = 0, decode: int = 0, seconds: float = 0.5, **others: object) -> StepRecord:
    return StepRecord(
        step=step,
        num_rows=1,
        num_tokens=prefill + decode,
        prefill_tokens=prefill,
        decode_tokens=decode,
        cost=StepCost(prefill + decode, 10 * (prefill + decode), 1000, 0, 0),
        seconds=seconds,
        overhead_seconds=0.25,
        **others,  # type: ignore[arg-type]
    )


def scheduled(*rows: tuple[int, int, bool]) -> SchedulerOutput:
    """Rows (start, num_tokens, samples), each its own request."""
    keys = [RequestKey(f"r{index}", 0) for index in range(len(rows))]
    return SchedulerOutput(
        step=7,
        dropped=(),
        new=(),
        rows=tuple(ScheduledRow(key, *row[:2], (), row[2]) for key, row in zip(keys, rows, strict=True)),
    )


def test_a_mixed_step_tells_prefill_from_decode() -> None:
    step = scheduled((0, 32, False), (32, 9, True), (50, 1, True), (60, 1, True), (12, 1, False))
    made = StepRecord.of(
        step,
        StepCost(44, 1000, 100, 20, 3),
        seconds=2.0,
        overhead_seconds=0.1,
        ended=9.5,
        num_free_blocks=5,
        num_waiting=6,
    )
    assert (made.step, made.num_rows, made.num_tokens) == (7, 5, 44)
    assert (made.prefill_tokens, made.decode_tokens) == (42, 2)
    assert (made.flops, made.num_bytes) == (1000, 123)
    assert (made.seconds, made.ended) == (2.0, 9.5)
    assert (made.num_free_blocks, made.num_waiting, made.num_preemptions) == (5, 6, 0)
    assert made.fraction_of_bandwidth is None
    assert made.fraction_of_peak_compute is None


def test_known_ceilings_give_fractions() -> None:
    device = Hardware("device", 1, bandwidth=1000.0, peak_flops={"bfloat16": 5000.0})
    made = StepRecord.of(
        scheduled((3, 1, True)),
        StepCost(1, 1000, 400, 90, 10),
        seconds=2.0,
        overhead_seconds=0.0,
        num_free_blocks=0,
        num_waiting=0,
        hardware=device,
        dtype="bfloat16",
    )
    assert made.fraction_of_bandwidth == pytest.approx(0.25)
    assert made.fraction_of_peak_compute == pytest.approx(0.1)


def test_the_log_is_bounded_and_its_totals_are_not() -> None:
    log = StepLog(capacity=3)
    for step in range(10):
        log.append(record(step, prefill=2, decode=1, preemptions=(LOST,)))
    assert [kept.step for kept in log.records] == [7, 8, 9]
    assert [kept.step for kept in log.since(8)] == [8, 9]
    totals = log.totals
    assert (totals.steps, totals.prefill_tokens, totals.decode_tokens, totals.preemptions) == (10, 20, 10, 10)
    assert totals.seconds == pytest.approx(5.0)
    assert (totals.flops, totals.num_bytes) == (300, 10_000)


def test_rates_take_each_kind_of_step_by_itself() -> None:
    summary = summarize(
        [record(prefill=100, decode=4, seconds=2.0), record(decode=5, seconds=0.25), record(decode=5, seconds=0.75)]
    )
    assert summary.steps == 3
    assert summary.prefill_tokens_per_second == pytest.approx(50.0)
    assert summary.decode_tokens_per_second == pytest.approx(10.0)
    assert summary.decode_tokens == 14
    assert summary.decode_step_ms == pytest.approx(500.0)
    assert (summary.decode_step_ms_p50, summary.decode_step_ms_p99) == (250.0, 750.0)
    assert summary.bytes_per_decode_step == 1000
    assert summary.flops_per_decode_step == 50
    assert summary.fraction_of_bandwidth is None


def test_fractions_are_weighted_by_time() -> None:
    summary = summarize(
        [
            record(decode=1, seconds=1.0, fraction_of_bandwidth=0.5),
            record(decode=1, seconds=3.0, fraction_of_bandwidth=0.9),
            record(prefill=8, seconds=1.0, fraction_of_peak_compute=0.3),
        ]
    )
    assert summary.fraction_of_bandwidth == pytest.approx(0.8)
    assert summary.fraction_of_peak_compute == pytest.approx(0.3)


def test_no_steps_and_no_time_give_nulls_in_json() -> None:
    empty = json.loads(json.dumps(summarize([]).as_dict()))
    assert empty["steps"] == 0
    assert empty["decode_step_ms"] is None
    assert empty["prefill_tokens_per_second"] is None
    assert summarize([record(decode=1, seconds=0.0)]).decode_tokens_per_second is None


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (0, 50, 95, 99, 100)] == [1.0, 50.0, 95.0, 99.0, 100.0]
    assert percentile([3.0], 50) == 3.0
    assert percentile([], 50) is None
