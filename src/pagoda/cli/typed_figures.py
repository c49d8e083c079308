"""Figures as people type them: `7B`, `7e9`, `flop=14e9,bytes=14e9`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from pagoda.errors import InvalidValueError

_UNITS = {"K": 1_000, "M": 1_000_000, "B": 1_000_000_000, "T": 1_000_000_000_000}
MOST_COUNT = 10**15
MOST_FIGURE = 1e30


def parse_count(option: str, text: str) -> int:
    """A whole number from 1 to `MOST_COUNT`: "7e9", "7B", "6738415616", "1.7b". Raises `InvalidValueError`."""
    digits, factor = text.strip(), 1
    if digits[-1:].upper() in _UNITS:
        digits, factor = digits[:-1], _UNITS[digits[-1:].upper()]
    limit = f"a whole number from 1 to {MOST_COUNT:,}, such as 7e9 or 7B"
    try:
        value = Decimal(digits if digits.isascii() else "")
        # Compared before it is multiplied or made an integer, which of 1e400000000 would take all memory.
        if value.is_finite() and Decimal("1e-12") <= value <= MOST_COUNT:
            count = value * factor
            if 1 <= count <= MOST_COUNT and count == int(count):
                return int(count)
    except InvalidOperation:
        pass
    raise InvalidValueError(option, text, limit)


def parse_pairs(option: str, text: str, names: Sequence[str]) -> list[float]:
    """One figure above 0 for each name, in the order of the names: "flop=14e9,bytes=14e9". Raises `InvalidValueError`."""
    example = ",".join(f"{name}=14e9" for name in names)
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, typed = (piece.strip() for piece in part.partition("="))
        if not sign or name not in names or name in found:
            raise InvalidValueError(option, part if sign else text, f"each of {', '.join(names)} once, as in {example}")
        try:
            value = float(typed)
        except ValueError:
            value = math.nan
        if not 0 < value <= MOST_FIGURE:
            raise InvalidValueError(f"{option} ({name})", typed, f"a number above 0 and up to {MOST_FIGURE:g}")
        found[name] = value
    if len(found) < len(names):
        raise InvalidValueError(option, text, f"each of {', '.join(names)} once, as in {example}")
    return [found[name] for name in names]
