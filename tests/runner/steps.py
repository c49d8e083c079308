"""Requests and steps for runner tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagoda.core.step import NewRequest, RequestKey, ScheduledRow, SchedulerOutput
from pagoda.sampling_params import SamplingParams


def key(name: str, choice: int = 0) -> RequestKey:
    return RequestKey(name, choice)


def request(name: str, prompt: Sequence[int], output: Sequence[int] = (), seed: int = 5, **sampling: Any) -> NewRequest:
    params = SamplingParams(**{"temperature": 0.0, **sampling}).resolved({}, 100)
    return NewRequest(key(name), (*prompt, *output), len(prompt), params, seed)


def row(name: str, start: int, num_tokens: int, blocks: Sequence[int] = (), samples: bool = True) -> ScheduledRow:
    return ScheduledRow(key(name), start, num_tokens, tuple(blocks), samples)


def step(
    number: int, rows: Sequence[ScheduledRow], new: Sequence[NewRequest] = (), dropped: Sequence[str] = ()
) -> SchedulerOutput:
    return SchedulerOutput(number, tuple(key(name) for name in dropped), tuple(new), tuple(rows))
