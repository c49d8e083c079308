"""Latencies of requests, and service-level objectives: limits on them, and the share of requests that has to keep them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.simulation.result import Outcomes

Seconds = npt.NDArray[np.float64]
LATENCIES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of each request in seconds, as a load generator measures them; NaN for refused requests.

    ttft: from arrival to the first token. tpot: from the first token to the last ÷ (output tokens - 1), NaN for a single
    token. e2e: from arrival to the end.
    """

    ttft: Seconds
    tpot: Seconds
    e2e: Seconds

    @classmethod
    def of(cls, outcomes: Outcomes) -> Latencies:
        arrival, first, end = (
            np.array(column) for column in (outcomes.arrival_time, outcomes.first_token, outcomes.end)
        )
        later_tokens = np.array(outcomes.output_tokens, dtype=np.float64) - 1
        later_tokens[later_tokens == 0] = np.nan
        return cls(first - arrival, (end - first) / later_tokens, end - arrival)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Latencies:
        return Latencies(self.ttft[chosen], self.tpot[chosen], self.e2e[chosen])


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits in seconds (None: none), kept when at least `percentile` % of all requests are within all of them."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None
    percentile: float = 99.0

    def met(self, latencies: Latencies) -> npt.NDArray[np.bool_]:
        """Which requests are within every limit: a refused one never is, a single token has no TPOT to miss."""
        met = ~np.isnan(latencies.e2e)
        for limit, seconds in ((self.ttft, latencies.ttft), (self.tpot, latencies.tpot), (self.e2e, latencies.e2e)):
            if limit is not None:
                met &= ~(seconds > limit)  # NaN is above nothing
        return met

    def kept_at(self, attainment: float) -> bool:
        """Whether this share of requests is enough."""
        return attainment >= self.percentile / 100


def parse_slo(field: str, text: str, percentile: float) -> Slo:
    """`ttft=0.5,tpot=0.05,e2e=20`, in seconds, at least one of them. Raises `InvalidValueError`."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, figure = part.partition("=")
        if name not in LATENCIES or name in limits:
            raise InvalidValueError(field, text, "seconds for any of ttft, tpot and e2e, such as ttft=0.5,tpot=0.05")
        try:
            value = float(figure)
        except ValueError:
            raise InvalidValueError(f"{field} ({name})", figure, "a number of seconds") from None
        limits[name] = checks.number(f"{field} ({name})", value, 1e-6, 1e6)
    return Slo(**limits, percentile=percentile)
