"""Traces: recorded arrivals, one request a line, read as a stream.

JSON lines with `time` (seconds), `prompt_tokens` and `output_tokens`, and optionally `prefix` and `prefix_tokens`; or a CSV
file with the columns of a public trace (see `trace_csv`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.simulation.lengths import MAX_TOKENS
from pagoda.simulation.text_lines import numbered_lines
from pagoda.simulation.trace_csv import csv_parser
from pagoda.simulation.workload import Arrival

# Every request's outcome is kept until the end.
MAX_REQUESTS = 5_000_000
MAX_SECONDS = 1e10  # more than a Unix time
MAX_PREFIX = 256
REQUIRED = ("time", "prompt_tokens", "output_tokens")
OPTIONAL = ("prefix", "prefix_tokens")

Fields = dict[str, Any]
Parser = Callable[[str], Fields]


def read_trace(path: Path, option: str = "--trace") -> Iterator[Arrival]:
    """The requests of a trace, in its order. Times count from its first line.

    A trace is never sorted, since it is never held whole: time running backwards is refused.

    Raises `InvalidValueError`, naming file, line, field, value and limit, for the first line that is wrong, and
    `PagodaError` where the file cannot be read.
    """
    parser: Parser | None = None
    first: float | None = None
    last = 0.0
    count = 0
    for number, line in numbered_lines(path, option):
        where = f"line {number} of {path}"
        if parser is None:
            if not line.startswith("{"):
                parser = csv_parser(where, line)
                continue
            parser = _json_fields
        if count == MAX_REQUESTS:
            raise InvalidValueError(where, line, f"the end of the trace: at most {MAX_REQUESTS:,} requests are read")
        try:
            arrival = _arrival(parser(line))
        except InvalidValueError as error:
            raise InvalidValueError(f"{where}: {error.field}", error.value, error.limit) from None
        if first is None:
            first = last = arrival.time
        if arrival.time < last:
            limit = f"at least {last!r}, the time of the request before: sort the trace by time"
            raise InvalidValueError(f"{where}: time", arrival.time, limit)
        last = arrival.time
        count += 1
        yield arrival._replace(time=last - first)
    if not count:
        raise InvalidValueError(option, str(path), "a trace with at least one request; this one has none")


def _json_fields(line: str) -> Fields:
    try:
        value = json.loads(line, object_pairs_hook=_unique)
    except RecursionError:
        raise InvalidValueError("line", line, "nested less deeply") from None
    except ValueError as error:
        raise InvalidValueError("line", line, f"a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise InvalidValueError("line", value, "a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Fields:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key comes twice")
    return fields


def _arrival(fields: Fields) -> Arrival:
    for name in fields:
        if name not in REQUIRED and name not in OPTIONAL:
            known = ", ".join((*REQUIRED, *OPTIONAL))
            raise InvalidValueError(name, fields[name], f"left out: there is no such field (there are {known})")
    for name in REQUIRED:
        if name not in fields:
            raise InvalidValueError(name, None, f"given, as are {', '.join(REQUIRED)}")
    prompt = checks.integer("prompt_tokens", fields["prompt_tokens"], 1, MAX_TOKENS)
    prefix = fields.get("prefix")
    if prefix is None and fields.get("prefix_tokens") is not None:
        raise InvalidValueError("prefix_tokens", fields["prefix_tokens"], "left out where there is no prefix")
    return Arrival(
        checks.number("time", fields["time"], 0, MAX_SECONDS),
        prompt,
        checks.integer("output_tokens", fields["output_tokens"], 1, MAX_TOKENS),
        None if prefix is None else checks.text("prefix", prefix, MAX_PREFIX),
        checks.integer("prefix_tokens", fields.get("prefix_tokens") or 0, 0, prompt),
    )
