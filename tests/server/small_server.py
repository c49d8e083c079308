"""`small_app` behind the real guard and the real loop, as a process: starts at once, as there is no model.

Usage: python -m tests.server.small_server. Prints its URL when it is ready.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagoda.config import ServerConfig
from pagoda.server.run import bind, run, url_of
from tests.server.small_app import service_of, small_app

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class SmallServer:
    url: str
    process: subprocess.Popen[str]


@contextmanager
def small_server() -> Iterator[SmallServer]:
    """One on a free port; killed at the end if it has not ended by then."""
    command = [sys.executable, "-m", "tests.server.small_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield SmallServer(process.stdout.readline().strip(), process)
        finally:
            process.kill()


def main() -> None:
    config = ServerConfig(port=0)
    with bind(config) as listener:
        service = service_of(config)
        run(small_app(service), service, listener, lambda: print(url_of(listener), flush=True))


if __name__ == "__main__":
    main()
