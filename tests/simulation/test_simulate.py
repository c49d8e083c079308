"""simulate: times that can be worked out by hand, and that nothing is lost."""

from __future__ import annotations

import pytest

from pagoda.errors import InvalidValueError
from pagoda.simulation.simulate import simulate
from pagoda.simulation.workload import Arrival, Outcome
from tests.simulation.models import COSTS, PerToken, cluster


def test_a_request_alone() -> None:
    """Read for 0.25 s, its prompt of 40 in steps of 32 and 8 tokens, then two steps for the second and third token."""
    arrival = Arrival(10.0, 40, 3)
    result = simulate([arrival], cluster(), COSTS, PerToken(step=1.0, token=0.125, request_seconds=0.25))
    first_token = 10.0 + 0.25 + (1 + 32 / 8) + (1 + 8 / 8)
    assert list(result.outcomes) == [Outcome(arrival, first_token, first_token + 2 * (1 + 1 / 8), 0)]
    assert (result.started, result.ended) == (10.0, first_token + 2.25)
    assert result.replicas[0].num_steps == 4
    assert result.replicas[0].num_tokens == 42
    assert result.replicas[0].busy_seconds == result.duration - 0.25


def test_who_comes_while_a_step_runs_waits_for_the_next() -> None:
    """A step a second. What comes at 1 is in the step that starts at 1; what comes after is in the next."""
    arrivals = [Arrival(0.0, 4, 4), Arrival(1.0, 4, 1), Arrival(1.25, 4, 1)]
    result = simulate(arrivals, cluster(), COSTS, PerToken())
    assert [(outcome.arrival, outcome.first_token, outcome.end) for outcome in result.outcomes] == [
        (arrivals[1], 2.0, 2.0),
        (arrivals[2], 3.0, 3.0),
        (arrivals[0], 1.0, 4.0),
    ]


def test_a_request_that_never_fits_is_refused_and_the_others_run() -> None:
    arrivals = [Arrival(0.0, 4, 2), Arrival(0.0, 300, 2), Arrival(0.0, 4, 2)]
    outcomes = list(simulate(arrivals, cluster(), COSTS, PerToken()).outcomes)
    assert sorted(outcome.arrival for outcome in outcomes) == sorted(arrivals)
    refused = next(outcome for outcome in outcomes if outcome.refusal is not None)
    assert (refused.arrival, refused.first_token, refused.end) == (arrivals[1], None, None)
    assert "64" in (refused.refusal or "")
    assert all(outcome.end == 2.0 for outcome in outcomes if outcome is not refused)


def test_nothing_arrives() -> None:
    result = simulate([], cluster(), COSTS, PerToken())
    assert list(result.outcomes) == []
    assert (result.duration, result.utilisation, result.kv_use, result.kv_waste) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arrival", "field"),
    [
        (Arrival(-1.0, 4, 4), r"arrivals\[1\].time"),
        (Arrival(float("nan"), 4, 4), r"arrivals\[1\].time"),
        (Arrival(0.5, 4, 4), r"arrivals\[1\].time"),
        (Arrival(2.0, 0, 4), r"arrivals\[1\].prompt_tokens"),
        (Arrival(2.0, 4, 0), r"arrivals\[1\].output_tokens"),
    ],
)
def test_an_arrival_that_is_none_is_refused(arrival: Arrival, field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        simulate([Arrival(1.0, 4, 4), arrival], cluster(), COSTS, PerToken())
