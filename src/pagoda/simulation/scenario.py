"""Scenario: a load on a cluster, ready to be simulated, and the questions asked of several runs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagoda.planning.costs import CostModel
from pagoda.planning.step_time import StepTimer
from pagoda.progress import Progress, silent
from pagoda.simulation.breaking_point import BreakingPoint, find_breaking_point
from pagoda.simulation.cluster import ClusterConfig
from pagoda.simulation.load import Load
from pagoda.simulation.report import Terms, attainment
from pagoda.simulation.result import Result
from pagoda.simulation.search import Search, search_devices
from pagoda.simulation.simulate import simulate
from pagoda.simulation.slo import Slo
from pagoda.simulation.workload import Arrival, Outcome

# How many requests go by between two looks at a progress bar.
SHOWN_EVERY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """max_model_len: requests that would become longer, prompt and output, are refused at the door, as the engine does it.

    devices_per_replica: the size of a tensor-parallel group, which is one replica.
    """

    load: Load
    cluster: ClusterConfig
    costs: CostModel
    timer: StepTimer
    max_model_len: int
    terms: Terms
    devices_per_replica: int = 1

    def run(self, progress: Progress = silent, task: str = "Simulating") -> Result:
        """progress: hears of requests that have arrived, of all that will."""
        too_long: list[Arrival] = []

        def admitted() -> Iterator[Arrival]:
            total = self.load.num_requests
            for count, arrival in enumerate(self.load.arrivals()):
                if count % SHOWN_EVERY == 0:
                    progress(task, count, max(count, total))
                if arrival.prompt_tokens + arrival.output_tokens > self.max_model_len:
                    too_long.append(arrival)
                else:
                    yield arrival

        result = simulate(admitted(), self.cluster, self.costs, self.timer)
        for arrival in too_long:
            refusal = f"prompt and output are longer than max_model_len {self.max_model_len:,}"
            result.outcomes.append(Outcome(arrival, None, None, 0, refusal=refusal))
        return result

    def with_replicas(self, replicas: int) -> Scenario:
        return replace(
            self,
            cluster=replace(self.cluster, num_replicas=replicas),
            terms=replace(self.terms, num_devices=replicas * self.devices_per_replica),
        )


def find_limit(scenario: Scenario, progress: Progress = silent) -> BreakingPoint:
    """The rate at which the scenario's objective breaks. Its load has a rate, its terms an objective."""
    slo, start = scenario.terms.slo, scenario.load.rate
    assert slo is not None
    assert start is not None

    def attained(rate: float) -> float:
        at_rate = replace(scenario, load=scenario.load.at(rate))
        return attainment(at_rate.run(progress, f"At {rate:.4g} requests/s"), scenario.terms)

    return find_breaking_point(attained, slo.kept_at, start)


def search(
    deployed: Callable[[int], Scenario], slo: Slo, sizes: Sequence[int], most_replicas: int, progress: Progress = silent
) -> Search:
    """The fewest devices that keep the objective. deployed: the scenario on replicas of so many devices each; raises
    `DoesNotFitError`.
    """

    def attained(size: int, replicas: int) -> float:
        scenario = deployed(size).with_replicas(replicas)
        return attainment(scenario.run(progress, f"On {replicas:,} × {size:,} devices"), scenario.terms)

    return search_devices(attained, slo.kept_at, sizes, most_replicas)


def compare(
    scenario: Scenario, field: str, choices: Sequence[str], progress: Progress = silent
) -> Iterator[tuple[str, Result]]:
    """The same load under each choice of one of the cluster's fields."""
    for choice in choices:
        change: dict[str, Any] = {field: choice}
        variant = replace(scenario, cluster=replace(scenario.cluster, **change))
        yield choice, variant.run(progress, choice)
