"""The ways in which a cluster can work, against each other, on loads small enough to be worked out by hand."""

from __future__ import annotations

import pytest

from pagoda.errors import InvalidValueError
from pagoda.simulation.result import Result
from pagoda.simulation.simulate import simulate
from pagoda.simulation.workload import Arrival
from tests.simulation.models import COSTS, PerToken, cluster


def run(arrivals: list[Arrival], **fields: object) -> Result:
    """Every step takes a second."""
    return simulate(arrivals, cluster(**fields), COSTS, PerToken())


def first_tokens(result: Result) -> dict[Arrival, float | None]:
    return {outcome.arrival: outcome.first_token for outcome in result.outcomes}


def test_static_batches_wait_for_their_longest() -> None:
    """Two at once, outputs of 5, 1, 1 and 3. Continuous: 5 steps beside 1 + 1 + 3. Static: a batch of 5, then one of 3."""
    arrivals = [Arrival(0.0, 2, output) for output in (5, 1, 1, 3)]
    assert run(arrivals, max_num_seqs=2).duration == 5.0
    assert run(arrivals, max_num_seqs=2, batching="static").duration == 8.0


def test_a_reservation_keeps_others_out() -> None:
    """Each needs 4 of the 28 blocks at its end, 2 at its beginning. Reserved, 7 requests fit. Paged, 8: as nobody has ended
    yet, each is expected to generate half of its tokens, 6, when they would have 16 + 12 blocks."""
    arrivals = [Arrival(0.0, 4, 13)] * 10
    fields = {"num_blocks": 28, "block_size": 4}

    def at_once(result: Result) -> int:
        return sum(outcome.first_token == 1.0 for outcome in result.outcomes)

    assert at_once(run(arrivals, **fields)) == 8
    contiguous = run(arrivals, allocation="contiguous", **fields)
    assert at_once(contiguous) == 7
    assert contiguous.num_preemptions == 0


def test_waste_is_what_is_allocated_and_holds_no_token() -> None:
    """4 tokens are in the cache in the first step, 16 in the 13th, 130 in all. Reserved: 16 slots all the time. Paged: 8 in
    5 steps, 12 in 4 and 16 in 4, which is 152."""
    arrivals = [Arrival(0.0, 4, 13)]
    contiguous = run(arrivals, allocation="contiguous")
    assert contiguous.kv_waste == 1 - 130 / (16 * 13)
    assert contiguous.kv_use == 4 / 64
    paged = run(arrivals)
    assert paged.kv_waste == 1 - 130 / 152
    assert paged.kv_use == pytest.approx(152 / 4 / 13 / 64, rel=1e-12)
    assert paged.kv_peak == contiguous.kv_peak == 4 / 64


def test_a_window_lets_more_run_and_what_is_given_up_is_no_waste() -> None:
    """Each has 12 blocks at its end, of which a window of 8 tokens touches 3. Of 28 blocks, all 4 requests find enough."""
    arrivals = [Arrival(0.0, 4, 45)] * 4
    fields = {"num_blocks": 28, "block_size": 4}
    windowed = run(arrivals, window=8, **fields)
    assert windowed.duration == 45.0
    assert windowed.num_preemptions == 0
    assert windowed.kv_peak == 4 * 3 / 28
    assert 0 < windowed.kv_waste < 0.5
    assert run(arrivals, **fields).duration > 45.0


def test_a_fragmented_cache_makes_a_contiguous_request_wait() -> None:
    """Of 12 blocks, 4 to 7 are in use until 4 s: 8 are free, and 5 in a row are asked for at 1 s. 4 lie outside of any gap
    that is the largest, in 3 of the 5 seconds."""
    short, long, wide = Arrival(0.0, 16, 1), Arrival(0.0, 13, 4), Arrival(1.0, 20, 1)
    contiguous = run([short, long, wide], num_blocks=12, allocation="contiguous")
    assert first_tokens(contiguous) == {short: 1.0, long: 1.0, wide: 5.0}
    assert contiguous.replicas[0].stranded_block_seconds == 4 * 3
    assert contiguous.kv_stranded == pytest.approx(4 / 12 * 3 / 5, rel=1e-12)
    paged = run([short, long, wide], num_blocks=12)
    assert first_tokens(paged) == {short: 1.0, long: 1.0, wide: 2.0}
    assert paged.kv_stranded == 0.0


def test_prefill_first_is_sooner_at_the_first_token_and_later_at_the_others() -> None:
    """A prompt that needs a whole step comes while somebody decodes. Mixed, it leaves one token for a second step; alone,
    it costs the other request a step, 4 for 3 tokens."""
    old, new = Arrival(0.0, 4, 4), Arrival(1.0, 32, 1)
    ends = {}
    for order in ("mixed", "prefill-first"):
        result = run([old, new], order=order)
        ends[order] = {outcome.arrival: outcome.end for outcome in result.outcomes}
    assert ends == {"mixed": {old: 4.0, new: 3.0}, "prefill-first": {old: 5.0, new: 2.0}}


def test_decode_first_leaves_prompts_until_nobody_decodes() -> None:
    old, new = Arrival(0.0, 4, 4), Arrival(1.0, 8, 1)
    result = run([old, new], order="decode-first")
    assert {outcome.arrival: outcome.end for outcome in result.outcomes} == {old: 4.0, new: 5.0}


def test_prompts_on_one_replica_and_outputs_on_another() -> None:
    """K and V of 4 tokens take half a second. Both prompts are done at 1; the second goes over the link after the first,
    and has come at 2, in a step that the first is in already."""
    per_token = COSTS.kv_bytes_per_token
    arrivals = [Arrival(0.0, 4, 3), Arrival(0.0, 4, 2), Arrival(0.0, 4, 1)]
    result = run(arrivals, num_replicas=2, prefill_replicas=1, transfer_bandwidth=4 * per_token / 0.5)
    assert [(outcome.arrival, outcome.first_token, outcome.end, outcome.replica) for outcome in result.outcomes] == [
        (arrivals[2], 1.0, 1.0, 0),
        (arrivals[0], 1.0, 3.5, 1),
        (arrivals[1], 1.0, 3.5, 1),
    ]
    prefill, decode = result.replicas
    assert (prefill.num_steps, prefill.num_tokens, prefill.transferred_bytes) == (1, 12, 8 * per_token)
    # Each token but the last is computed once: the positions that came are not.
    assert (decode.num_steps, decode.num_tokens, decode.transferred_bytes) == (2, 3, 0)


def test_positions_that_came_are_computed_again_after_a_preemption() -> None:
    """Two requests of 4 blocks at their end, in 7: the second gives way when both need their fourth."""
    arrivals = [Arrival(0.0, 4, 13)] * 2
    result = run(arrivals, num_replicas=2, prefill_replicas=1, transfer_bandwidth=1e12, num_blocks=7, block_size=4)
    assert [outcome.num_preemptions for outcome in result.outcomes] == [0, 1]
    decode = result.replicas[1]
    assert decode.num_preemptions == 1
    # Both compute 12 tokens beyond the prompt of 4; one of them 12 positions again, those of three blocks.
    assert decode.num_lost_tokens == 12
    assert decode.num_tokens == 2 * 12 + 12


def test_a_request_whose_output_never_fits_is_refused_before_its_prompt_is_computed() -> None:
    result = run([Arrival(0.0, 4, 300)], num_replicas=2, prefill_replicas=1, transfer_bandwidth=1e12)
    assert [outcome.refusal is not None for outcome in result.outcomes] == [True]
    assert result.replicas[0].num_steps == 0


def test_what_prompts_share_is_computed_once_on_each_replica() -> None:
    """Prompts of 12 tokens, 8 of them of one of two prefixes: on one replica, only the first of each computes these."""
    arrivals = [Arrival(float(number), 12, 1, "ab"[number % 2], 8) for number in range(6)]
    cached = run(arrivals, prefix_cache=True).replicas[0]
    assert (cached.num_tokens, cached.num_found_tokens) == (2 * 12 + 4 * 4, 4 * 8)
    plain = run(arrivals).replicas[0]
    assert (plain.num_tokens, plain.num_found_tokens) == (6 * 12, 0)


def test_prefix_aware_routing_finds_more_than_round_robin() -> None:
    """Three prefixes in turn on two replicas: round robin brings each prefix to both; prefix-aware to one, so that all but
    its first request find 8 tokens."""
    arrivals = [Arrival(2.0 * number, 12, 1, "abc"[number % 3], 8) for number in range(12)]
    found = {}
    for routing in ("round-robin", "prefix-aware"):
        result = run(arrivals, prefix_cache=True, num_replicas=2, routing=routing)
        found[routing] = sum(use.num_found_tokens for use in result.replicas)
    assert found == {"round-robin": 8 * (12 - 6), "prefix-aware": 8 * (12 - 3)}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"num_replicas": 2, "prefill_replicas": 2, "transfer_bandwidth": 1.0}, "prefill_replicas"),
        ({"num_replicas": 2, "prefill_replicas": 1}, "transfer_bandwidth"),
        ({"num_replicas": 2, "prefill_replicas": 1, "transfer_bandwidth": 0.0}, "transfer_bandwidth"),
        ({"num_replicas": 2, "prefill_replicas": 1, "transfer_bandwidth": float("nan")}, "transfer_bandwidth"),
        ({"num_replicas": 0}, "num_replicas"),
        ({"prefix_cache": True, "allocation": "contiguous"}, "prefix_cache"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        run([Arrival(0.0, 4, 4)], **fields)
