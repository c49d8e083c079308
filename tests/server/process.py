"""A real `pagoda serve`: a process of its own, on a free port of this machine."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
PAGODA = (sys.executable, "-c", "from pagoda.cli.main import main; main()")
# What makes the tiny model start at once and stay out of the way.
SMALL = ("--threads", "1", "--num-kv-blocks", "64")
READY_SECONDS = 120


@dataclass(frozen=True)
class RunningServer:
    """url: `http://127.0.0.1:PORT`. base_url: the same with `/v1`, as OpenAI's client wants it."""

    url: str
    base_url: str
    model: str
    process: subprocess.Popen[str]
    log: IO[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stderr(self) -> str:
        """What it has said so far."""
        self.log.seek(0)
        return self.log.read()


@contextmanager
def serving(*arguments: str, program: Sequence[str] = PAGODA) -> Iterator[RunningServer]:
    """`pagoda serve ARGUMENTS` once it is ready; killed at the end if it has not ended by then."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        command = [*program, "serve", *arguments, "--port", "0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT) as process:
            try:
                assert process.stdout is not None
                readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
                line = process.stdout.readline() if readable else ""
                log.seek(0)
                assert line, f"the server did not start: {log.read()}"
                ready = json.loads(line)
                yield RunningServer(ready["url"], ready["base_url"], ready["model"], process, log)
            finally:
                process.kill()
