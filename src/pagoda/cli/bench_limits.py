"""What `pagoda bench limits` measures: this machine's ceilings, by the threads and instructions that the engine uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from types import TracebackType
from typing import Any, Literal

from pagoda import _native
from pagoda.planning.formats import FORMATS
from pagoda.planning.hardware import Hardware
from pagoda.progress import Progress
from pagoda.runner.host_memory import host_memory
from pagoda.runner.native_threads import start_threads

# Far more than caches hold, and little beside a model.
READ_BYTES = 256 << 20
ROUNDS = 3
READ_SECONDS = 5.0
PEAKS: tuple[Literal["int8", "bf16", "fp32"], ...] = ("int8", "bf16", "fp32")


class Machine:
    """Measures with a pool of threads of its own, which sleep otherwise. Bytes and operations a second."""

    def __init__(self, threads: int, instruction_set: str) -> None:
        self.threads, self.instruction_set = threads, instruction_set
        self._pool = start_threads(threads, instruction_set)

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.close()

    def read_bandwidth(self) -> float:
        return _native.read_bandwidth(self._pool, READ_BYTES)

    def format_ceiling(self, format_name: str) -> float:
        """Of products with weights in that format, all of it in the nearest cache."""
        return _native.format_ceiling(self._pool, format_name)

    def hardware(self, bandwidth: float, peaks: dict[str, float]) -> Hardware:
        """What was measured, to reckon fractions with. peaks: by the names that those will be asked for."""
        return Hardware(f"this machine ({self.instruction_set})", host_memory().usable_bytes, bandwidth, peaks)

    def limits(self, bars: Progress) -> dict[str, Any]:
        """Everything, under the names that `docs/cli.md` explains; takes some seconds.

        Operations are measured in turn, `ROUNDS` times, and the best counts, so that a moment in which others compute does
        not spoil a figure.
        """
        operations: dict[str, Callable[[], float]] = {
            **{kind: partial(_native.peak_operations, self._pool, kind) for kind in PEAKS},
            **{name: partial(self.format_ceiling, name) for name in FORMATS},
        }
        found: dict[str, list[float]] = {name: [] for name in operations}
        for done in range(ROUNDS * len(operations)):
            bars("Measuring operations", done, ROUNDS * len(operations))
            name = list(operations)[done % len(operations)]
            found[name].append(operations[name]())
        bandwidth = self._lasting_bandwidth(bars)
        return {
            "threads": self.threads,
            "instruction_set": self.instruction_set,
            "read_bandwidth": bandwidth,
            "peak_operations": {kind: max(found[kind]) for kind in PEAKS},
            "format_ceilings": {name: max(found[name]) for name in FORMATS},
        }

    def _lasting_bandwidth(self, bars: Progress) -> float:
        """The median over some seconds of reading and nothing else.

        Virtual machines are let read twice as fast for a second or two after a pause, which a busy server's steps do not see.
        """
        readings: list[float] = []
        started = time.perf_counter()
        while not readings or time.perf_counter() - started < READ_SECONDS:
            bars("Measuring bandwidth", time.perf_counter() - started, READ_SECONDS)
            readings.append(self.read_bandwidth())
        return median(readings)


def table(limits: dict[str, Any]) -> list[tuple[str, str]]:
    """For people: what each figure is, and the figure in billions."""
    rows = [
        ("threads", f"{limits['threads']} ({limits['instruction_set']})"),
        ("read bandwidth", f"{limits['read_bandwidth'] / 1e9:,.1f} GB/s"),
    ]
    rows += [(f"{kind} peak", f"{rate / 1e9:,.0f} GOP/s") for kind, rate in limits["peak_operations"].items()]
    return rows + [(f"{name} product", f"{rate / 1e9:,.0f} GOP/s") for name, rate in limits["format_ceilings"].items()]
