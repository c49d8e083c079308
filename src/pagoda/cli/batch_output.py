"""The output of a batch: one line per finished request, append-only, so that a killed run loses nothing.

A line counts as done when its newline is in the file. Beside the output lies `NAME.meta.json`, which says what the output
was made from: another input, model or parameter cannot be mixed into it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from pagoda.errors import PagodaError
from pagoda.progress import TerminalProgress

SYNC_SECONDS = 1.0


class BatchOutput:
    """A context manager. Opening reads what an earlier run has finished and cuts off a line that it left torn.

    num_lines: of the input. num_done, num_failed: lines in the file, of earlier runs too.
    Raises `PagodaError` where the output is from another input, model or parameters, another run has it open, or it cannot
    be written. What was made here and holds no result when an error ends it is removed.
    """

    def __init__(self, path: Path, fingerprint: dict[str, Any], overwrite: bool, num_lines: int) -> None:
        self.path = path
        self.num_done = self.num_failed = 0
        self._meta = description_of(path)
        self._num_lines = num_lines
        # One byte an input line, as a batch may have very many.
        self._done = bytearray()
        self._synced = 0.0
        self._is_ours = False
        is_new = not path.exists()
        # Looked at before it is opened: opening a pipe waits for a reader, reading a device may never end.
        if not is_new and not path.is_file():
            raise PagodaError(
                f"--output: {path} is not an ordinary file, so a stopped batch could not be resumed from it"
            )
        with self._told():
            self._file: BinaryIO = path.open("a+b")
        try:
            with self._told():
                _lock(self._file, path)
                self._is_ours = is_new
                if overwrite:
                    self._file.truncate(0)
                self._check(fingerprint, overwrite)
                with TerminalProgress() as bars:
                    self._read_done(bars)
        except BaseException:
            self._close_after_error()
            raise

    def has(self, line: int) -> bool:
        return line < len(self._done) and bool(self._done[line])

    def append(self, line: int, entry: dict[str, Any]) -> None:
        """One finished line: written in one piece, at once out of this process, and synced to disk once a second."""
        text = json.dumps({"line": line, **entry}, ensure_ascii=False, allow_nan=False)
        # A lone surrogate can only come from an error that quotes one; \udxxx is JSON's own spelling for it.
        with self._told():
            self._file.write(text.encode("utf-8", "backslashreplace") + b"\n")
            self._file.flush()
            self._count(line, "error" in entry)
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def __enter__(self) -> BatchOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._close_after_error()
            return
        with self._told(), self._file:
            os.fsync(self._file.fileno())

    def _close_after_error(self) -> None:
        """Keeps the results that can be kept. Never raises: the error that ends the run is the one to be told."""
        with contextlib.suppress(OSError):
            if self._is_ours and not os.fstat(self._file.fileno()).st_size:
                self.path.unlink()
                self._meta.unlink()
        with contextlib.suppress(OSError), self._file:
            os.fsync(self._file.fileno())

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PagodaError(f"--output: {self.path} cannot be written: {error.strerror or error}") from None

    def _check(self, fingerprint: dict[str, Any], overwrite: bool) -> None:
        meta = self._meta
        remedy = "give another --output, or --overwrite to start anew"
        if not overwrite and os.fstat(self._file.fileno()).st_size:
            try:
                earlier = json.loads(meta.read_bytes())
            except (OSError, ValueError):
                raise PagodaError(f"{self.path} exists, and {meta.name} does not say what made it; {remedy}") from None
            keys = sorted(fingerprint.keys() | (earlier.keys() if isinstance(earlier, dict) else set()))
            differing = [
                key for key in keys if not isinstance(earlier, dict) or earlier.get(key) != fingerprint.get(key)
            ]
            if differing:
                raise PagodaError(f"{self.path} was made with another {', '.join(differing)}; {remedy}")
        else:
            # Written whole before the first result, so that results never lie beside a description that is not theirs.
            temporary = meta.with_name(meta.name + ".tmp")
            try:
                temporary.write_text(json.dumps(fingerprint, indent=2) + "\n")
                temporary.replace(meta)
            except OSError as error:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise PagodaError(
                    f"--output: {meta}, which describes it, cannot be written: {error.strerror}"
                ) from None

    def _read_done(self, bars: TerminalProgress) -> None:
        end, size = 0, os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        for number, raw in enumerate(self._file, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                entry = json.loads(raw)
                line = entry["line"]
                if type(line) is not int or not 1 <= line <= self._num_lines or self.has(line):
                    raise ValueError
                self._count(line, "error" in entry)
            except (ValueError, TypeError, KeyError, RecursionError):
                remedy = "repair or --overwrite it"
                raise PagodaError(f"{self.path}: line {number} is not a result of this input; {remedy}") from None
            end += len(raw)
            if number % 1000 == 0:
                bars("Reading what is done", end, size)
        self._file.truncate(end)

    def _count(self, line: int, failed: bool) -> None:
        if line >= len(self._done):
            self._done.extend(bytes(max(line + 1 - len(self._done), 4096)))
        self._done[line] = 1
        self.num_done += 1
        self.num_failed += failed


def description_of(output: Path) -> Path:
    """The file beside the output that says what it was made from."""
    return Path(f"{output}.meta.json")


def _lock(file: BinaryIO, path: Path) -> None:
    """Two runs on one output would do every line twice. The lock goes with the process, however that ends."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PagodaError(f"another run is writing {path}") from None
    except OSError:
        return  # a file system without locks, as some network ones are
    if os.fstat(file.fileno()).st_nlink == 0:
        raise PagodaError(f"another run, which failed, has just removed {path}; try again")
