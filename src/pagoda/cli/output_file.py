"""A file that a command will write at its end: whether it can be written is known before the work begins."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pagoda.errors import InvalidValueError


class OutputFile:
    """Opened by `output_file`; `write` replaces what was in the file."""

    def __init__(self, option: str, path: Path, descriptor: int) -> None:
        self.path = path
        self._option, self._descriptor = option, descriptor
        self.is_written = False

    def write(self, data: bytes) -> None:
        """Raises `InvalidValueError` where it cannot be written after all, for instance on a full disk."""
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                file.truncate(0)
                file.write(data)
        except OSError as error:
            raise _refused(self._option, self.path, error.strerror) from None
        self.is_written = True


@contextlib.contextmanager
def output_file(option: str, path: str | None) -> Iterator[OutputFile | None]:
    """The file named by an option; None where the option was not given. An old file stays as it was until it is written;
    a new one that was never written is removed.

    Raises `InvalidValueError` for what is no ordinary file or cannot be opened for writing.
    """
    if path is None:
        yield None
        return
    place = Path(path)
    if "\0" in path or not path:
        raise InvalidValueError(option, path, "the name of a file")
    try:
        is_new = not os.path.lexists(place)
        # Looked at before it is opened: opening a pipe waits for a reader.
        if not is_new and place.exists() and not place.is_file():
            raise InvalidValueError(option, path, "an ordinary file")
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise _refused(option, place, error.strerror) from None
    file = OutputFile(option, place, descriptor)
    try:
        yield file
    finally:
        os.close(descriptor)
        if is_new and not file.is_written:
            with contextlib.suppress(OSError):
                place.unlink()


def _refused(option: str, path: Path, reason: str | None) -> InvalidValueError:
    return InvalidValueError(option, str(path), f"a file that can be written ({reason or 'it cannot'})")
