"""The worker threads of the native kernels."""

from __future__ import annotations

from pagoda import _native
from pagoda.errors import InvalidValueError


def start_threads(count: int, instruction_set: str) -> _native.Threads:
    """A pool of so many. Raises `InvalidValueError` where the system does not let this process have them."""
    try:
        return _native.Threads(count, instruction_set)
    except (RuntimeError, MemoryError) as error:
        raise InvalidValueError("threads", count, f"as many as the system lets this process start ({error})") from None
