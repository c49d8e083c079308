"""`pagoda` that kills itself (SIGKILL) once it has written so many bytes of the batch's output, in the middle of a line.

Usage: python killed_run.py BYTES ARGUMENTS…
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pagoda.cli import batch_output
from pagoda.cli.main import main


class DyingFile:
    """A file that ends the process when it has taken `budget` bytes more."""

    def __init__(self, file: Any, budget: int) -> None:
        self._file, self._budget = file, budget

    def write(self, data: bytes) -> int:
        if len(data) >= self._budget:
            self._file.write(data[: self._budget])
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget -= len(data)
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def die_after(budget: int) -> None:
    original = batch_output.BatchOutput.__init__

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._file = DyingFile(self._file, budget)

    batch_output.BatchOutput.__init__ = init  # type: ignore[method-assign]


if __name__ == "__main__":
    die_after(int(sys.argv.pop(1)))
    main()
