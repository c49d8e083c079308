"""Whatever the cluster and the load: every request ends once, the clock never goes back, blocks add up at every step."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core import invariants
from pagoda.simulation.cluster import CHOICES, ClusterConfig
from pagoda.simulation.replica import Replica
from pagoda.simulation.simulate import simulate
from pagoda.simulation.workload import Arrival
from tests.simulation.models import COSTS, PerToken
from tests.soak import soak_count


class CheckedReplica(Replica):
    def start(self) -> float | None:
        invariants.check(self.scheduler)
        seconds = super().start()
        invariants.check(self.scheduler)
        return seconds


@st.composite
def clusters(draw: st.DrawFn) -> ClusterConfig:
    replicas = draw(st.integers(1, 4))
    budget = draw(st.sampled_from([1, 3, 16, 64]))
    fields = {field: draw(st.sampled_from(choices)) for field, choices in CHOICES.items()}
    return ClusterConfig(
        num_blocks=draw(st.integers(2, 24)),
        block_size=draw(st.sampled_from([1, 3, 4])),
        max_num_seqs=draw(st.integers(1, 8)),
        max_batched_tokens=budget,
        prefill_chunk=draw(st.integers(1, budget)),
        num_replicas=replicas,
        prefill_replicas=draw(st.integers(0, replicas - 1)),
        transfer_bandwidth=1e3,
        prefix_cache=fields["allocation"] == "paged" and draw(st.booleans()),
        **fields,  # type: ignore[arg-type]
    )


@st.composite
def loads(draw: st.DrawFn) -> list[Arrival]:
    """Times in quarters of a second, so that many fall together with each other and with the ends of steps."""
    times = sorted(draw(st.lists(st.integers(0, 40), max_size=25)))
    lengths, prefixes = st.integers(1, 20), st.sampled_from([None, "a", "b"])

    def arrival(time: int) -> Arrival:
        prompt, prefix = draw(lengths), draw(prefixes)
        return Arrival(time / 4, prompt, draw(lengths), prefix, draw(st.integers(0, prompt)) if prefix else 0)

    return [arrival(time) for time in times]


@settings(max_examples=soak_count(1000), derandomize=True, database=None, deadline=None)
@given(config=clusters(), load=loads(), request_seconds=st.sampled_from([0.0, 0.25, 0.3]))
def test_every_request_ends_once(config: ClusterConfig, load: list[Arrival], request_seconds: float) -> None:
    timer = PerToken(step=1.0, token=0.125, request_seconds=request_seconds)
    with mock.patch("pagoda.simulation.simulate.Replica", CheckedReplica):
        result = simulate(iter(load), config, COSTS, timer)
    outcomes = list(result.outcomes)
    assert sorted(map(repr, load)) == sorted(repr(outcome.arrival) for outcome in outcomes)
    ends = [outcome.end for outcome in outcomes if outcome.end is not None]
    assert ends == sorted(ends)
    assert result.ended == max([*ends, *(arrival.time for arrival in load)], default=0.0)
    for arrival, first_token, end, replica, _, refusal in outcomes:
        fits = -(-(arrival.prompt_tokens + arrival.output_tokens - 1) // config.block_size) <= config.num_blocks
        assert (refusal is None) == fits
        if first_token is None or end is None:
            assert first_token is end is None
            assert refusal
            continue
        # Each token after the first takes a step.
        assert first_token >= arrival.time + request_seconds + 1.125
        assert end >= first_token + 1.125 * (arrival.output_tokens - 1)
        assert (replica < config.prefill_replicas) == (config.prefill_replicas > 0 and arrival.output_tokens == 1)
    served = [outcome.arrival for outcome in outcomes if outcome.refusal is None]
    computed = sum(use.num_tokens - use.num_lost_tokens for use in result.replicas)
    brought = 0
    if config.prefill_replicas:
        moved = [arrival.prompt_tokens for arrival in served if arrival.output_tokens > 1]
        assert sum(use.transferred_bytes for use in result.replicas) == COSTS.kv_bytes_per_token * sum(moved)
        # What a preemption loses may have come over the link, so it was not computed before.
        brought = sum(moved)
    needed = sum(arrival.prompt_tokens + arrival.output_tokens - 1 for arrival in served)
    # The cache may also have what a preemption lost.
    found = sum(use.num_found_tokens for use in result.replicas)
    assert needed - brought - found <= computed <= needed
    assert all(use.busy_seconds <= result.duration + 1e-9 for use in result.replicas)
    assert 0 <= result.kv_waste < 1
    assert 0 <= result.kv_use <= result.kv_peak <= 1
    assert 0 <= result.kv_stranded < 1
    again = simulate(load, config, COSTS, timer)
    assert (list(again.outcomes), again.replicas, again.ended) == (outcomes, result.replicas, result.ended)
