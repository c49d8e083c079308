"""Names of threads where the operating system shows them: in `top -H`, in profilers, in /proc."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path


def name_in_system() -> None:
    """Give the calling thread its Python name there too; threads that it starts later inherit it. Linux only.

    Python itself does so from 3.14 on. The system keeps 15 bytes of a name.
    """
    with contextlib.suppress(OSError):
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(threading.current_thread().name[:15], encoding="utf-8")
