"""What Pagoda has measured and saved: small JSON files, each saying what it is. They may come from anybody."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError, PagodaError

MAX_BYTES = 1 << 20


def read_saved(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The object in the file, whose `format` and `format_version` must be these. Raises `PagodaError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PagodaError(f"{path}: is not an ordinary file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PagodaError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(content) > MAX_BYTES:
        raise PagodaError(f"{path}: more than {MAX_BYTES:,} bytes, no file that Pagoda has saved")
    try:
        value = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise PagodaError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise PagodaError(f"{path}: holds a JSON {type(value).__name__}, an object is needed")
    checks.choice(f"{path}: format", value.get("format"), (kind,))
    if value.get("format_version") != version or isinstance(value.get("format_version"), bool):
        raise InvalidValueError(f"{path}: format_version", value.get("format_version"), f"{version}; measure anew")
    return value


def save(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Write such a file, whole or not at all; folders that are missing are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": kind, "format_version": version, **content}, indent=1, allow_nan=False) + "\n"
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
