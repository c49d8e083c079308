"""When requests arrive: gaps between them, as processes of the field name them.

Every process is drawn at a rate of one and then stretched, so that one seed at another rate is the same load, faster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, repeat

from pagoda import checks
from pagoda.errors import InvalidValueError

# Requests to services of language models come in bursts: gamma-distributed gaps describe them, with a coefficient of
# variation above 1 (Li et al., AlpaServe, arXiv:2302.11665; Wang et al., BurstGPT, arXiv:2401.17644).
DEFAULT_VARIATION = 3.0
MAX_VARIATION = 100.0
PROCESSES = ("poisson", "bursty", "constant", "at-once")
FORMS = "poisson, bursty, bursty:VARIATION, constant or at-once"

Gap = Callable[[random.Random], float]


@dataclass(frozen=True, slots=True)
class ArrivalProcess:
    """variation: the coefficient of variation of gaps, standard deviation ÷ mean; 1 is Poisson's, 0 is constant.

    at_once: everything at time 0 instead, as in an offline batch; there is no rate then.
    """

    variation: float
    at_once: bool = False

    def times(self, rate: float, seed: int) -> Iterator[float]:
        """Arrival times without end, from one mean gap after 0 on average; rate: requests a second."""
        if self.at_once:
            return repeat(0.0)
        gap = _gap(self.variation)
        numbers = random.Random(f"arrivals {seed}")  # of text, so that lengths of the same seed are independent
        return (units / rate for units in accumulate(gap(numbers) for _ in repeat(None)))


def parse_arrivals(field: str, text: str) -> ArrivalProcess:
    """`poisson`, `bursty` (variation 3), `bursty:4`, `constant` or `at-once`. Raises `InvalidValueError`."""
    name, colon, figure = text.partition(":")
    if name not in PROCESSES or (colon and name != "bursty"):
        raise InvalidValueError(field, text, f"one of {FORMS}")
    if name != "bursty":
        return ArrivalProcess({"poisson": 1.0, "constant": 0.0, "at-once": 0.0}[name], at_once=name == "at-once")
    if not colon:
        return ArrivalProcess(DEFAULT_VARIATION)
    try:
        variation = float(figure)
    except ValueError:
        raise InvalidValueError(field, text, f"one of {FORMS}") from None
    return ArrivalProcess(checks.number(f"{field} (variation)", variation, 0.01, MAX_VARIATION))


def _gap(variation: float) -> Gap:
    """Draws gaps with mean 1 and that coefficient of variation."""
    if variation == 0.0:
        return lambda numbers: 1.0
    if variation == 1.0:
        return lambda numbers: numbers.expovariate(1.0)
    # A gamma distribution of shape k and scale 1/k has mean 1 and standard deviation 1/sqrt(k).
    shape = variation**-2
    return lambda numbers: numbers.gammavariate(shape, 1 / shape)
