"""Progress that costs what is measured next to nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pagoda.progress import TerminalProgress


class Watch:
    """A bar for work that takes over two seconds; moved twice a second, by a thread, while the work only counts."""

    def __init__(self, task: str, total: float) -> None:
        self._task, self._total = task, total
        self._done = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show)

    def __enter__(self) -> Callable[[], None]:
        self._thread.start()
        return self._count

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self) -> None:
        self._done += 1

    def _show(self) -> None:
        pause = 2.0
        with TerminalProgress() as bars:
            while not self._over.wait(pause):
                pause = 0.5
                bars(self._task, min(self._done, self._total), self._total)
