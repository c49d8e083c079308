"""Progress of long work: what reports it, and how a terminal shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    """Called as work goes on: what is being done, how much of it is done, how much there is (in any unit)."""

    def __call__(self, task: str, done: float, total: float) -> None: ...


def silent(task: str, done: float, total: float) -> None:
    """Progress that nobody watches."""


# Work that is done sooner shows no bar: it would only flicker.
PATIENCE_SECONDS = 2.0


class TerminalProgress:
    """A bar per task with rate and time left, on stderr, once the work has taken two seconds. A context manager; shows
    nothing unless `enabled`.

    enabled: None means only where stderr is a terminal, so that logs and pipes stay clean. clock: in seconds.
    """

    def __init__(self, enabled: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._enabled = sys.stderr.isatty() if enabled is None else enabled
        self._clock, self._begun = clock, clock()
        self._bars: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> TerminalProgress:
        return self

    def __call__(self, task: str, done: float, total: float) -> None:
        if not self._enabled:
            return
        if self._bars is None:
            if self._clock() - self._begun < PATIENCE_SECONDS:
                return
            self._bars = _bars()
            self._bars.start()
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total)
        self._bars.update(self._tasks[task], completed=done, total=total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()


def _bars() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            decimals = 0 if (task.speed or 0) >= 10 else 2
            return Text(f"{task.speed:,.{decimals}f}/s" if task.speed else "")

    # Transient: what is worth keeping is printed by whoever did the work.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
