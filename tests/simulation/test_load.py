"""Loads: where they end, and that another rate changes nothing but times."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.simulation.arrivals import ArrivalProcess
from pagoda.simulation.lengths import Uniform
from pagoda.simulation.load import DrawnLoad, TraceLoad

POISSON, CONSTANT = ArrivalProcess(1.0), ArrivalProcess(0.0)


def drawn(process: ArrivalProcess = POISSON, rate: float | None = 2.0, **bounds: float | int) -> DrawnLoad:
    return DrawnLoad(
        process=process, rate=rate, prompt_tokens=Uniform(1, 99), output_tokens=Uniform(1, 99), seed=0, **bounds
    )


def test_a_drawn_load_ends_by_count_or_by_time() -> None:
    assert len(list(drawn(requests=17).arrivals())) == 17
    assert [arrival.time for arrival in drawn(CONSTANT, duration=2.0).arrivals()] == [0.5, 1.0, 1.5]
    assert len(list(drawn(CONSTANT, requests=2, duration=2.0).arrivals())) == 2
    assert drawn(requests=17).num_requests == 17
    assert drawn(duration=10.0).num_requests == 20
    at_once = drawn(ArrivalProcess(0.0, at_once=True), rate=None, requests=3)
    assert [arrival.time for arrival in at_once.arrivals()] == [0.0, 0.0, 0.0]


def test_another_rate_is_the_same_load_faster() -> None:
    load = drawn(requests=50)
    slow, again, fast = list(load.arrivals()), list(load.arrivals()), list(load.at(4.0).arrivals())
    assert slow == again
    assert [arrival._replace(time=arrival.time * 2) for arrival in fast] == slow
    assert load.at(4.0).rate == 4.0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    line = '{{"time": {}, "prompt_tokens": {}, "output_tokens": 2}}\n'
    path.write_text("".join(line.format(100 + 2 * index, index + 1) for index in range(5)))
    return path


def test_a_trace_is_replayed_at_its_own_rate_or_another(trace: Path) -> None:
    load = TraceLoad.of(trace, None, None)
    assert (load.num_requests, load.rate) == (5, 0.5)
    assert [arrival.time for arrival in load.arrivals()] == [0, 2, 4, 6, 8]
    fast = load.at(2.0)
    assert fast.rate == 2.0
    assert [arrival.time for arrival in fast.arrivals()] == [0, 0.5, 1, 1.5, 2]
    assert [arrival.prompt_tokens for arrival in fast.arrivals()] == [1, 2, 3, 4, 5]


def test_a_part_of_a_trace(trace: Path) -> None:
    assert [arrival.time for arrival in TraceLoad.of(trace, 2, None).at(0.25).arrivals()] == [0, 4]
    # Seconds of the recording: at any speed these are the same requests.
    by_time = TraceLoad.of(trace, None, 4.5)
    assert by_time.num_requests == len(list(by_time.at(50.0).arrivals())) == 3


def test_a_trace_without_time_has_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"time": 3, "prompt_tokens": 1, "output_tokens": 1}\n' * 2)
    load = TraceLoad.of(path, None, None)
    assert load.rate is None
    assert [arrival.time for arrival in load.arrivals()] == [0, 0]


def test_a_trace_says_whether_prompts_begin_alike(trace: Path) -> None:
    assert not drawn(requests=1).has_prefixes
    assert not TraceLoad.of(trace, None, None).has_prefixes
    with trace.open("a") as file:
        file.write('{"time": 200, "prompt_tokens": 9, "output_tokens": 2, "prefix": "a", "prefix_tokens": 4}\n')
    assert TraceLoad.of(trace, None, None).has_prefixes
    assert not TraceLoad.of(trace, 5, None).has_prefixes
