"""What every command prints and how: JSON and text on stdout, everything about the work itself on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from pagoda.cli.streams import give_up, put

# C0 and C1 controls but for tab and newline: escape sequences begin with one of them.
UNSHOWN = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def print_json(value: Any) -> None:
    """Exactly one JSON object and a newline on stdout."""
    # Where stdout is not UTF-8, escapes keep the object whole.
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    put(json.dumps(value, ensure_ascii=not utf8, allow_nan=False) + "\n")


def write(text: str) -> None:
    """Text on stdout as it comes, shown at once. On a terminal without control characters, which could take it over."""
    put(text.translate(UNSHOWN) if sys.stdout.isatty() else text)


def note(sentence: str) -> None:
    """A remark on stderr; it is no reason to fail where that cannot be written."""
    put("")  # in the order in which they were said
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        give_up(sys.stderr)


def interactive() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()
