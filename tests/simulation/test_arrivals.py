"""Arrival processes have the moments that they are named for, and are the same for the same seed."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from statistics import fmean

import pytest

from pagoda.errors import InvalidValueError
from pagoda.simulation.arrivals import ArrivalProcess, parse_arrivals

COUNT = 20_000


def gaps(process: ArrivalProcess, rate: float, seed: int = 0) -> list[float]:
    times = list(islice(process.times(rate, seed), COUNT))
    return [times[0], *(after - before for before, after in pairwise(times))]


@pytest.mark.parametrize("form", ["poisson", "bursty", "bursty:0.5", "bursty:6"])
def test_gaps_have_the_mean_and_the_variation_asked_for(form: str) -> None:
    process = parse_arrivals("--arrivals", form)
    drawn = gaps(process, rate=4.0)
    variation = {"poisson": 1.0, "bursty": 3.0, "bursty:0.5": 0.5, "bursty:6": 6.0}[form]
    assert process.variation == variation
    # Four standard errors. Of a mean: deviation / sqrt(n). Of a squared deviation, relative: sqrt((kurtosis - 1) / n), a
    # gamma distribution's kurtosis being 3 + 6 variation² (an exponential's 9).
    mean, expected = fmean(drawn), 1 / 4.0
    assert abs(mean - expected) < 4 * variation * expected / math.sqrt(COUNT)
    squared = fmean((gap - mean) ** 2 for gap in drawn) / expected**2
    assert abs(squared / variation**2 - 1) < 4 * math.sqrt((2 + 6 * variation**2) / COUNT)


def test_poisson_gaps_have_no_memory() -> None:
    drawn = gaps(parse_arrivals("--arrivals", "poisson"), rate=1.0)
    longer = [gap for gap in drawn if gap > 1]
    # P(gap > 2 | gap > 1) = P(gap > 1) = 1/e; four standard errors of a share.
    for share, of in ((len(longer) / COUNT, COUNT), (sum(gap > 2 for gap in longer) / len(longer), len(longer))):
        assert abs(share - math.exp(-1)) < 4 * math.sqrt(0.25 / of)


def test_constant_and_at_once() -> None:
    assert list(islice(parse_arrivals("--arrivals", "constant").times(2.0, 0), 3)) == [0.5, 1.0, 1.5]
    assert list(islice(parse_arrivals("--arrivals", "at-once").times(2.0, 0), 3)) == [0.0, 0.0, 0.0]


def test_a_seed_is_one_load_which_a_rate_stretches() -> None:
    process = parse_arrivals("--arrivals", "bursty:2")
    slow, again, fast, other = (
        list(islice(process.times(rate, seed), 100)) for rate, seed in ((1.0, 7), (1.0, 7), (8.0, 7), (1.0, 8))
    )
    assert slow == again != other
    assert fast == [time / 8 for time in slow]
    assert slow == sorted(slow)


@pytest.mark.parametrize(
    "form", ["", "gamma", "poisson:2", "bursty:", "bursty:x", "bursty:-1", "bursty:nan", "bursty:0"]
)
def test_what_is_no_process_is_refused(form: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^--arrivals"):
        parse_arrivals("--arrivals", form)
