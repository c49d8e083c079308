"""CSV traces, by the column names of public ones; other columns are left alone.

Azure's LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset): TIMESTAMP, ContextTokens,
GeneratedTokens. BurstGPT (github.com/HPMLL/BurstGPT): Timestamp, Request tokens, Response tokens. Or a trace's own names:
time, prompt_tokens, output_tokens.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from pagoda.errors import InvalidValueError

COLUMNS = {
    "time": ("time", "timestamp"),
    "prompt_tokens": ("prompt_tokens", "contexttokens", "request tokens"),
    "output_tokens": ("output_tokens", "generatedtokens", "response tokens"),
}
# Fractions have up to seven digits in these traces, more than `fromisoformat` takes before Python 3.11.
DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def csv_parser(where: str, header: str) -> Callable[[str], dict[str, Any]]:
    """What reads a line's fields, given the first line of the file. Raises `InvalidValueError`."""
    names = [name.strip().lower() for name in _cells(header)]
    places: dict[str, int] = {}
    for field, aliases in COLUMNS.items():
        found = [index for index, name in enumerate(names) if name in aliases]
        if len(found) != 1:
            limit = f"a JSON object, or the header of a CSV file with one column {' or '.join(aliases)} (in any case)"
            raise InvalidValueError(where, header, limit)
        places[field] = found[0]

    def parse(line: str) -> dict[str, Any]:
        cells = _cells(line)
        if len(cells) != len(names):
            raise InvalidValueError("line", line, f"{len(names)} columns, as the header has")
        return {
            "time": _seconds(cells[places["time"]].strip()),
            "prompt_tokens": _count(cells[places["prompt_tokens"]].strip()),
            "output_tokens": _count(cells[places["output_tokens"]].strip()),
        }

    return parse


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise InvalidValueError("line", line, f"comma-separated values ({error})") from None


def _seconds(text: str) -> float:
    """Seconds as a number, or a date and time (UTC where it does not say), as seconds since 1970."""
    date = DATE.fullmatch(text)
    try:
        if date is None:
            return float(text)
        day, clock, fraction, zone = date.groups()
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}")
        return moment.astimezone(timezone.utc).timestamp() + float(fraction or 0)
    except (ValueError, OverflowError):
        raise InvalidValueError("time", text, "seconds, or a date and time as 2024-05-10 00:00:00.25") from None


def _count(text: str) -> int | str:
    """An integer where it is one; anything else goes on as it is and is refused with its field's limit."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else text
