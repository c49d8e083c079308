"""How long work takes on the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def median_seconds(work: Callable[[], object], repeats: int, warm_up: int = 3) -> float:
    """The median of `repeats` runs, all queued before the first is waited for: the host's own time is not in it."""
    for _ in range(warm_up):
        work()
    if not torch.cuda.is_available():
        return statistics.median(_host_seconds(work) for _ in range(repeats))
    events = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(repeats)]
    for begun, ended in events:
        begun.record()
        work()
        ended.record()
    torch.cuda.synchronize()
    return statistics.median(begun.elapsed_time(ended) / 1e3 for begun, ended in events)


def _host_seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
