"""How long prompts and outputs are: one length, a range, a lognormal distribution, or lengths that were seen.

`parse_lengths` reads the forms of the command line.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Protocol

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.simulation.text_lines import numbered_lines

MAX_TOKENS = 1 << 24
MAX_SEEN = 10_000_000
FORMS = "TOKENS, FROM:TO, lognormal:MEAN:VARIATION or file:PATH"


class Lengths(Protocol):
    """A distribution of lengths in tokens, each at least 1."""

    def draw(self, numbers: random.Random) -> int: ...

    @property
    def mean(self) -> float: ...

    @property
    def longest(self) -> int:
        """No length is above it."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from `low` to `high` is as likely as any other; both the same: a fixed length."""

    low: int
    high: int

    def draw(self, numbers: random.Random) -> int:
        return numbers.randint(self.low, self.high) if self.low < self.high else self.low

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def longest(self) -> int:
        return self.high


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The logarithm of a length is normal, which makes a few of them very long; rounded, at least 1 and at most `longest`.

    mean, variation: of the distribution before it is rounded and cut; variation is standard deviation ÷ mean.
    """

    mean: float
    variation: float
    longest: int = MAX_TOKENS

    def draw(self, numbers: random.Random) -> int:
        # mean = exp(mu + sigma² / 2) and variation² = exp(sigma²) - 1, solved for mu and sigma.
        sigma_squared = math.log1p(self.variation**2)
        mu = math.log(self.mean) - sigma_squared / 2
        return max(1, min(self.longest, round(numbers.lognormvariate(mu, math.sqrt(sigma_squared)))))


@dataclass(frozen=True, slots=True)
class Seen:
    """Lengths that were seen, each as likely as any other, drawn with replacement."""

    lengths: tuple[int, ...]

    def draw(self, numbers: random.Random) -> int:
        return numbers.choice(self.lengths)

    @property
    def mean(self) -> float:
        return sum(self.lengths) / len(self.lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths)


def drawn(lengths: Lengths, seed: int, what: str) -> Iterator[int]:
    """Lengths without end. what: keeps those of prompts and of outputs independent under one seed."""
    numbers = random.Random(f"{what} {seed}")
    return (lengths.draw(numbers) for _ in repeat(None))


def parse_lengths(field: str, text: str) -> Lengths:
    """`512`, `32:512`, `lognormal:512:0.8`, or `file:PATH` with one length a line.

    Raises `InvalidValueError`, with the line's number where it is a file's, and `PagodaError` for one that cannot be read.
    """
    kind, _, rest = text.partition(":")
    if kind == "file":
        return _seen(field, Path(rest))
    parts = rest.split(":") if kind == "lognormal" else text.split(":")
    if len(parts) > 2 or (kind == "lognormal" and len(parts) != 2):
        raise InvalidValueError(field, text, f"one of {FORMS}")
    if kind == "lognormal":
        mean, variation = (_figure(field, text, part) for part in parts)
        return Lognormal(
            checks.number(f"{field} (mean)", mean, 1, MAX_TOKENS),
            checks.number(f"{field} (variation)", variation, 0.01, 10.0),
        )
    low, high = (_tokens(field, text, part) for part in (parts[0], parts[-1]))
    if low > high:
        raise InvalidValueError(field, text, "FROM:TO with FROM at most TO")
    return Uniform(low, high)


def _seen(field: str, path: Path) -> Seen:
    """One length a line; blank lines are skipped."""
    lengths: list[int] = []
    for number, line in numbered_lines(path, field):
        if len(lengths) == MAX_SEEN:
            raise InvalidValueError(
                f"line {number} of {path}", line, f"the end of the file: {MAX_SEEN:,} lengths are read"
            )
        lengths.append(_tokens(f"line {number} of {path}", line, line))
    if not lengths:
        raise InvalidValueError(field, str(path), "a file with one length a line; this one has none")
    return Seen(tuple(lengths))


def _tokens(field: str, shown: str, text: str) -> int:
    # Nothing but ASCII digits: int() would take "1_0" and "٣" too, and any number of digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidValueError(field, shown, f"one of {FORMS}" if field.startswith("--") else "a number of tokens")
    checks.integer(field, int(text), 1, MAX_TOKENS)
    return int(text)


def _figure(field: str, shown: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(field, shown, f"one of {FORMS}") from None
