"""JSON from a model's directory: size bounded, one sentence for whatever is wrong with it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from pagoda.errors import ModelFileError

MAX_JSON_BYTES = 100_000_000


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object that the file holds. Raises `ModelFileError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path}: is not an ordinary file")
        size = status.st_size
        if size > MAX_JSON_BYTES:
            raise ModelFileError(f"{path}: {size:,} bytes of JSON, at most {MAX_JSON_BYTES:,} are read")
        text = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from None
    return parse_json_object(text, str(path))


def parse_json_object(text: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `text`, with every key once. Raises `ModelFileError`, whose message begins with `where`."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique)
    except RecursionError:
        raise ModelFileError(f"{where}: not valid JSON (nested too deeply)") from None
    except ValueError as error:  # covers invalid UTF-8, invalid JSON, integers too long to convert
        raise ModelFileError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{where}: holds a JSON {type(value).__name__}, an object is needed")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        # set.add returns None, so this finds the first key that comes a second time.
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {double[:80]!r} comes twice")
    return result
