"""The standard streams: usable in whatever state the process got them, and failing in a sentence."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from pagoda.errors import PagodaError

# Which way each is opened where the process was started without it. A result that has nowhere to go, or a prompt that
# comes from nowhere, must fail: so input can only be written, and output only be read. Remarks are only lost.
MISSING = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))


def prepare_streams() -> None:
    """Puts the null device where a standard stream is closed, and takes away what a strange character would break."""
    for number, (name, mode, access) in enumerate(MISSING):
        if getattr(sys, name) is None:
            # On its own number, which otherwise the next file to be opened would get, and strangers' output with it.
            null = os.open(os.devnull, access)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    # A terminal that cannot show a character must not end the work; bytes that are no text are refused as the prompt.
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=errors)


def read_stdin() -> str:
    """All of stdin. Raises `PagodaError`."""
    with _named("stdin cannot be read"):
        return sys.stdin.read()


def stdin_lines() -> Iterator[str]:
    """The lines of stdin as they come. Raises `PagodaError`."""
    while True:
        with _named("stdin cannot be read"):
            line = sys.stdin.readline()
        if not line:
            return
        yield line


def put(text: str) -> None:
    """Text on stdout, at once. Raises `BrokenPipeError` where nobody reads, `PagodaError` where it cannot be written."""
    with _named("stdout cannot be written"):
        sys.stdout.write(text)
        sys.stdout.flush()


def flush_stdout() -> None:
    """Sends off what others have printed, while a failure can still be told. Raises what `put` raises."""
    try:
        put("")
    except (BrokenPipeError, PagodaError):
        give_up(sys.stdout)
        raise


def give_up(stream: TextIO) -> None:
    """What is still in the stream's buffer goes nowhere, so that the flush at exit does not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):
        os.dup2(null, stream.fileno())
    os.close(null)


@contextlib.contextmanager
def _named(failure: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PagodaError(f"{failure}: {error.strerror}") from None
