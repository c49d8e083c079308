"""Running `pagoda` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pagoda(*arguments: str | Path, stdin: str = "", timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """The finished command, its output as text. stdin is never a terminal."""
    return run(
        [sys.executable, "-c", "from pagoda.cli.main import main; main()"], *arguments, stdin=stdin, timeout=timeout
    )


def run(
    command: list[str], *arguments: str | Path, stdin: str = "", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1", "COLUMNS": "120"},
        timeout=timeout,
        check=False,
    )
