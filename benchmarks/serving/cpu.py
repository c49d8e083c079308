"""CPU time of a process's threads, the engine's apart from all others. Linux."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ENGINE = "pagoda-engine"  # the thread names itself so, and those it starts to compute with inherit the name


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """others: event loop, making of text, and whatever else is not the engine."""

    engine: float
    others: float

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.engine - earlier.engine, self.others - earlier.others)

    def __add__(self, other: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.engine + other.engine, self.others + other.others)


def cpu_seconds(pid: int) -> CpuSeconds:
    """Since each thread's start; those that have ended are not counted. From schedstat, which counts nanoseconds."""
    engine = others = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
        if (task / "comm").read_text().strip() == ENGINE:
            engine += seconds
        else:
            others += seconds
    return CpuSeconds(engine, others)
