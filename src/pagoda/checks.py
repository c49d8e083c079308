"""Checks at the edge. Each returns the value in its proper type, or raises `InvalidValueError` with field, value, limit."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real

from pagoda.errors import InvalidValueError


def integer(field: str, value: object, minimum: int | None = None, maximum: int | None = None) -> int:
    """An integer, numpy's too (no bool, no float that happens to be whole), from `minimum` to `maximum`, both included."""
    limit = "an integer" + _range(minimum, maximum)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidValueError(field, value, limit)
    value = int(value)
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise InvalidValueError(field, value, limit)
    return value


def number(field: str, value: object, minimum: float | None = None, maximum: float | None = None) -> float:
    """A finite number from `minimum` to `maximum`, both included; NaN and infinities are refused."""
    limit = "a finite number" + _range(minimum, maximum)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValueError(field, value, limit)
    try:
        result = float(value)
    except OverflowError:
        raise InvalidValueError(field, value, limit) from None
    if not math.isfinite(result):
        raise InvalidValueError(field, value, limit)
    if (minimum is not None and result < minimum) or (maximum is not None and result > maximum):
        raise InvalidValueError(field, value, limit)
    return result


def boolean(field: str, value: object) -> bool:
    """True or False, and nothing that is merely truthy."""
    if not isinstance(value, bool):
        raise InvalidValueError(field, value, "true or false")
    return value


def text(field: str, value: object, max_length: int | None = None) -> str:
    """A str that UTF-8 can encode (no lone surrogates) of at most `max_length` characters."""
    if not isinstance(value, str):
        raise InvalidValueError(field, value, "a string")
    if max_length is not None and len(value) > max_length:
        raise InvalidValueError(field, value, f"at most {max_length:,} characters long")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValueError(field, value, "text that UTF-8 can encode (no lone surrogates)") from None
    return value


def choice(field: str, value: object, choices: Collection[str]) -> str:
    """One of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidValueError(field, value, "one of " + ", ".join(choices))
    return value


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum:,} to {maximum:,}"
    if minimum is not None:
        return f" of at least {minimum:,}"
    if maximum is not None:
        return f" of at most {maximum:,}"
    return ""
