"""A process of its own, with a limit: when time is up, or it has ended, nothing of it is left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence


def run_apart(command: Sequence[str], seconds: float, environment: Mapping[str, str]) -> tuple[str, str]:
    """How it ended ("done", if well), and all that it printed."""
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command, stdout=printed, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(seconds)
            outcome = "done" if code == 0 else f"failed with {code}"
        except subprocess.TimeoutExpired:
            outcome = f"stopped after {seconds:.0f} s"
        finally:
            # The whole group, as it may have started processes itself.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        return outcome, printed.read().decode(errors="replace")
