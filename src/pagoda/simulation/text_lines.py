"""Lines of a text file from outside: read as a stream, bounded, numbered from 1."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from pagoda.errors import InvalidValueError, PagodaError

MAX_LINE_BYTES = 64 << 10


def numbered_lines(path: Path, option: str) -> Iterator[tuple[int, str]]:
    """(number, text without surrounding blanks) of every line that is not blank.

    option: what named the file, for refusals. Raises `PagodaError` for what cannot be read or is no ordinary file, and
    `InvalidValueError`, naming file and line, for a line that is too long or no UTF-8.
    """
    try:
        # Looked at before it is opened: opening a pipe waits for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise PagodaError(f"{option}: {path} is not an ordinary file")
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise InvalidValueError(f"line {number} of {path}", raw, f"at most {MAX_LINE_BYTES:,} bytes long")
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")  # a byte-order mark, as some editors write it
                try:
                    text = raw.decode().strip()
                except UnicodeDecodeError as error:
                    raise InvalidValueError(f"line {number} of {path}", raw, f"UTF-8 ({error.reason})") from None
                if text:
                    yield number, text
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise PagodaError(f"{option}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
