"""Scenarios whose limits are known: a step takes a second, and a replica computes one request at a time in one step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagoda.errors import DoesNotFitError
from pagoda.simulation.arrivals import ArrivalProcess
from pagoda.simulation.lengths import Uniform
from pagoda.simulation.load import DrawnLoad
from pagoda.simulation.report import Terms
from pagoda.simulation.scenario import Scenario, compare, find_limit, search
from pagoda.simulation.slo import Slo
from tests.simulation.models import COSTS, PerToken, cluster

SLO = Slo(e2e=1.5, percentile=99.0)


def scenario(rate: float, requests: int = 100) -> Scenario:
    load = DrawnLoad(
        process=ArrivalProcess(0.0),
        rate=rate,
        prompt_tokens=Uniform(4, 4),
        output_tokens=Uniform(1, 1),
        seed=0,
        requests=requests,
    )
    return Scenario(
        load=load,
        cluster=cluster(max_num_seqs=1),
        costs=COSTS,
        timer=PerToken(step=1.0),
        max_model_len=64,
        terms=Terms(slo=SLO),
    )


@pytest.mark.parametrize("start", [0.3, 5.0])
def test_the_limit_of_a_queue_with_one_server(start: float) -> None:
    # Request i waits i × (1 - 1/rate) seconds, and 99 of 100 may wait 0.5: the last of those is i = 98.
    limit = 1 / (1 - 0.5 / 98)
    found = find_limit(scenario(start))
    assert found.kept is not None
    assert found.broken is not None
    assert found.kept <= limit < found.broken
    assert found.broken / found.kept <= 1.02


def test_the_fewest_replicas_for_a_rate() -> None:
    # Three replicas would get 1.3 requests a second each, four 0.975.
    found = search(lambda size: scenario(3.9), SLO, [1], 64)
    assert found.best is not None
    assert found.best.replicas == 4
    assert {(each.replicas, each.kept) for each in found.candidates} == {(1, False), (2, False), (3, False), (4, True)}


def test_a_size_that_does_not_fit_is_reported() -> None:
    def deployed(size: int) -> Scenario:
        if size == 1:
            raise DoesNotFitError("too small")
        return replace(scenario(0.5), devices_per_replica=size)

    found = search(deployed, SLO, [1, 2], 64)
    assert found.best is not None
    assert found.best.devices == 2
    assert found.candidates[0].note == "too small"


def test_what_would_become_too_long_is_refused_and_counts() -> None:
    lengths = replace(scenario(0.5).load, prompt_tokens=Uniform(60, 67), requests=40)  # type: ignore[type-var]
    result = replace(scenario(0.5), load=lengths, cluster=cluster(max_num_seqs=1, max_batched_tokens=128)).run()
    served = [outcome for outcome in result.outcomes if outcome.end is not None]
    refused = [outcome for outcome in result.outcomes if outcome.end is None]
    assert len(served) + len(refused) == 40
    assert {outcome.arrival.prompt_tokens for outcome in served} == {60, 61, 62, 63}
    assert {outcome.arrival.prompt_tokens for outcome in refused} == {64, 65, 66, 67}
    assert all("max_model_len 64" in (outcome.refusal or "") for outcome in refused)


def test_progress_is_told() -> None:
    heard: list[tuple[str, float, float]] = []
    scenario(0.5, requests=200).run(lambda *told: heard.append(told))
    assert heard == [("Simulating", done, 200) for done in (0, 64, 128, 192)]


def test_variants_run_on_the_same_load() -> None:
    variants = dict(
        compare(
            replace(scenario(3.9), cluster=cluster(max_num_seqs=1, num_replicas=2)),
            "routing",
            ["round-robin", "least-loaded"],
        )
    )
    arrivals = [sorted(outcome.arrival for outcome in result.outcomes) for result in variants.values()]
    assert arrivals[0] == arrivals[1]
    assert list(variants) == ["round-robin", "least-loaded"]
