"""Loads: the requests of a simulation, drawn or recorded, at any rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Protocol

from pagoda.simulation.arrivals import ArrivalProcess
from pagoda.simulation.lengths import Lengths, drawn
from pagoda.simulation.trace import read_trace
from pagoda.simulation.workload import Arrival


class Load(Protocol):
    """The same requests at whatever rate: only their times change."""

    @property
    def rate(self) -> float | None:
        """Mean requests a second; None where all come at once."""
        ...

    @property
    def num_requests(self) -> int:
        """How many there are, about; for showing progress."""
        ...

    @property
    def has_prefixes(self) -> bool:
        """Whether any of them say that prompts begin alike."""
        ...

    def arrivals(self) -> Iterator[Arrival]:
        """In the order of their times; the same ones each time."""
        ...

    def at(self, rate: float) -> Load:
        """This load at another rate."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLoad:
    """Requests of a process and two distributions of lengths.

    It ends after `requests` of them or at `duration` seconds, whichever is first; one of the two is given. A load that
    ends by `duration` has more requests at a higher rate.
    """

    process: ArrivalProcess
    rate: float | None
    prompt_tokens: Lengths
    output_tokens: Lengths
    seed: int
    requests: int | None = None
    duration: float | None = None

    @property
    def num_requests(self) -> int:
        by_duration = None if self.duration is None or self.rate is None else max(1, round(self.rate * self.duration))
        return min(count for count in (self.requests, by_duration) if count is not None)

    @property
    def has_prefixes(self) -> bool:
        return False

    def arrivals(self) -> Iterator[Arrival]:
        times = self.process.times(self.rate or 1.0, self.seed)
        prompts = drawn(self.prompt_tokens, self.seed, "prompt_tokens")
        outputs = drawn(self.output_tokens, self.seed, "output_tokens")
        return _cut((Arrival(*request) for request in zip(times, prompts, outputs)), self.requests, self.duration)  # noqa: B905

    def at(self, rate: float) -> DrawnLoad:
        return replace(self, rate=rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLoad:
    """Recorded requests, the first `requests` of them and those before `duration` seconds of the recording (None: all).

    speed: how many times as fast as they were recorded.
    """

    path: Path
    num_requests: int
    recorded_rate: float | None
    has_prefixes: bool = False
    speed: float = 1.0

    @classmethod
    def of(cls, path: Path, requests: int | None, duration: float | None) -> TraceLoad:
        """Reads the trace once. Raises what `read_trace` raises."""
        count, last, has_prefixes = 0, 0.0, False
        for arrival in _cut(read_trace(path), requests, duration):
            count, last = count + 1, arrival.time
            has_prefixes = has_prefixes or arrival.prefix_tokens > 0
        rate = (count - 1) / last if last else None
        return cls(path=path, num_requests=count, recorded_rate=rate, has_prefixes=has_prefixes)

    @property
    def rate(self) -> float | None:
        """(requests - 1) ÷ (last time - first time)."""
        return None if self.recorded_rate is None else self.recorded_rate * self.speed

    def arrivals(self) -> Iterator[Arrival]:
        for arrival in islice(read_trace(self.path), self.num_requests):
            yield arrival._replace(time=arrival.time / self.speed)

    def at(self, rate: float) -> TraceLoad:
        """`recorded_rate` is known."""
        assert self.recorded_rate is not None
        return replace(self, speed=rate / self.recorded_rate)


def _cut(arrivals: Iterator[Arrival], requests: int | None, duration: float | None) -> Iterator[Arrival]:
    if duration is not None:
        arrivals = takewhile(lambda arrival: arrival.time < duration, arrivals)
    return arrivals if requests is None else islice(arrivals, requests)
