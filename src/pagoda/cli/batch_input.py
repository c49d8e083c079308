"""The lines of a batch file: what each asks for, or why it is refused. Read as a stream; the file may be huge."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pagoda import checks
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.progress import Progress
from pagoda.sampling_params import SamplingParams

MAX_LINE_BYTES = 64 << 20
CHUNK = 1 << 20
SAMPLING_FIELDS = tuple(field.name for field in dataclasses.fields(SamplingParams))


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One line, numbered from 1. `error` says why it is refused; otherwise `prompt` and `sampling` are what it asks.

    prompt: text, token ids or chat messages. id: the caller's own name for the line, given back with its result.
    priority: lower goes first, under policy "priority". cache_salt: what is cached is shared only among lines of the same one.
    """

    number: int
    id: str | int | None = None
    prompt: str | Sequence[Any] = ""
    sampling: SamplingParams | None = None
    priority: int = 0
    cache_salt: str | None = None
    error: InvalidValueError | None = None


@dataclass(frozen=True, slots=True)
class InputSummary:
    num_lines: int
    num_bytes: int
    sha256: str


def summarize(path: Path, progress: Progress) -> InputSummary:
    """One pass over the file: how many lines it has, and its hash. Raises `PagodaError` where it cannot be read."""
    digest, newlines, size, last = hashlib.sha256(), 0, 0, b"\n"
    with _open(path) as file:
        total = os.fstat(file.fileno()).st_size
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            newlines += chunk.count(b"\n")
            size += len(chunk)
            last = chunk[-1:]
            progress("Reading the input", size, max(total, size))
    return InputSummary(newlines + (last != b"\n"), size, digest.hexdigest())


def read_lines(path: Path, defaults: SamplingParams) -> Iterator[BatchLine]:
    """Every line that is not blank. defaults: the sampling parameters of a line that does not set its own."""
    with _open(path) as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(CHUNK)
                yield BatchLine(
                    number, error=InvalidValueError("line", "a longer one", f"at most {MAX_LINE_BYTES:,} B")
                )
                continue
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")  # a byte-order mark, as some editors write it
            if raw.strip():
                yield parse_line(number, raw, defaults)


def parse_line(number: int, raw: bytes, defaults: SamplingParams) -> BatchLine:
    """One line's bytes. Never raises for what is in them: the result carries the error."""
    id_: str | int | None = None
    try:
        fields = _fields(raw)
        id_ = _id(fields.pop("id", None))
        prompt = _prompt(fields)
        priority, cache_salt = fields.pop("priority", None), fields.pop("cache_salt", None)
        for name, value in fields.items():
            if name not in SAMPLING_FIELDS:
                known = ", ".join(("prompt", "messages", "id", "priority", "cache_salt", *SAMPLING_FIELDS))
                raise InvalidValueError(name, value, f"left out: there is no such field (there are {known})")
        given = {name: value for name, value in fields.items() if value is not None}
        sampling = dataclasses.replace(defaults, **given)
        # Whether this engine has priorities, and which, it says itself.
        return BatchLine(number, id_, prompt, sampling, 0 if priority is None else priority, cache_salt)
    except InvalidValueError as error:
        return BatchLine(number, id_, error=error)


def _open(path: Path) -> BinaryIO:
    try:
        # Looked at before it is opened: opening a pipe waits for a writer.
        if stat.S_ISREG(path.stat().st_mode):
            return path.open("rb")
    except OSError as error:
        raise PagodaError(f"--input: {path} cannot be read: {error.strerror}") from None
    raise PagodaError(f"--input: {path} is not an ordinary file, so a stopped batch could not be resumed from it")


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode())
    except RecursionError:
        raise InvalidValueError("line", raw, "nested less deeply") from None
    except ValueError as error:
        raise InvalidValueError("line", raw.strip(), f"a JSON object in UTF-8 ({error})") from None
    if not isinstance(value, dict):
        raise InvalidValueError("line", value, "a JSON object")
    return value


def _id(value: object) -> str | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, str):
        raise InvalidValueError("id", value, "a string or an integer")
    return checks.text("id", value)


def _prompt(fields: dict[str, Any]) -> str | Sequence[Any]:
    """Takes `prompt` or `messages` out of the fields; what is in them the engine checks."""
    prompt, messages = fields.pop("prompt", None), fields.pop("messages", None)
    if (prompt is None) == (messages is None):
        raise InvalidValueError("prompt", prompt, "given, or else messages; exactly one of the two")
    if messages is not None:
        if not isinstance(messages, list) or not messages or not all(isinstance(entry, Mapping) for entry in messages):
            raise InvalidValueError("messages", messages, "a list of objects with role and content")
        return messages
    if isinstance(prompt, list):
        # Of objects it would be a conversation, which is what `messages` is for.
        return [checks.integer(f"prompt[{index}]", token_id, 0) for index, token_id in enumerate(prompt)]
    if not isinstance(prompt, str):
        raise InvalidValueError("prompt", prompt, "text or a list of token ids")
    return prompt
