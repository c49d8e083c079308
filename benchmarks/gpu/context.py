"""Context: what every stage is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpu.report import Report
from gpu.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Context:
    """folder: where the models are, and every stage's report. started: when this process was, on the clock of `time.time`.
    seconds: how long it may take from then on."""

    sizes: Sizes
    report: Report
    folder: Path
    started: float
    seconds: float
