"""The report's figures, worked out by hand."""

from __future__ import annotations

import json

import pytest

from pagoda.errors import InvalidValueError
from pagoda.simulation.report import Terms, attainment, summarize
from pagoda.simulation.result import ReplicaUse
from pagoda.simulation.slo import Slo, parse_slo
from tests.simulation.outcomes import refused, result, served

# Arrives at 0, 1, 2, 3, 4; first tokens after 0.1 … 0.5, then 4 further tokens in 0.4, 0.8, 1.2, 1.6, 2.0 seconds.
FIVE = [served(n, n + 0.1 * (n + 1), n + 0.1 * (n + 1) + 0.4 * (n + 1)) for n in range(5)]


def test_latencies_and_rates() -> None:
    report = summarize(result(FIVE), Terms())
    assert report["requests"] == 5
    assert report["seconds"] == pytest.approx(4 + 0.5 + 2.0)
    assert (report["prompt_tokens"], report["output_tokens"]) == (50, 25)
    assert report["requests_per_second"] == pytest.approx(5 / 6.5)
    assert report["output_tokens_per_second"] == pytest.approx(25 / 6.5)
    assert report["total_tokens_per_second"] == pytest.approx(75 / 6.5)
    # Nearest rank of five: the 3rd is the median, the 5th is p90 and above.
    assert report["ttft_seconds"] == pytest.approx({"mean": 0.3, "p50": 0.3, "p90": 0.5, "p95": 0.5, "p99": 0.5})
    assert report["tpot_seconds"] == pytest.approx({"mean": 0.3, "p50": 0.3, "p90": 0.5, "p95": 0.5, "p99": 0.5})
    assert report["e2e_seconds"] == pytest.approx({"mean": 1.5, "p50": 1.5, "p90": 2.5, "p95": 2.5, "p99": 2.5})
    assert report["slo"] is report["cost"] is None


def test_percentiles_are_nearest_ranks() -> None:
    hundred = [served(0.0, float(n), 200.0) for n in range(100, 0, -1)]
    spread = summarize(result(hundred), Terms())["ttft_seconds"]
    assert spread == {"mean": 50.5, "p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


def test_goodput_counts_requests_within_every_limit_and_no_refused_one() -> None:
    # Within 0.35 s to the first token are 3, within 0.25 s a token 2, within 1.1 s to the end 2.
    outcomes = result([*FIVE, refused(2.0)])
    for slo, met in (
        (Slo(ttft=0.35), 3),
        (Slo(tpot=0.25), 2),
        (Slo(ttft=0.35, tpot=0.25), 2),
        (Slo(e2e=1.1), 2),
        (Slo(e2e=9), 5),
    ):
        found = summarize(outcomes, Terms(slo=slo))["slo"]
        assert found["attainment"] == met / 6 == attainment(outcomes, Terms(slo=slo))
        assert found["goodput"] == pytest.approx(met / 6.5)
        assert not found["kept"]
    assert summarize(outcomes, Terms(slo=Slo(e2e=9, percentile=83.3)))["slo"]["kept"]
    assert not summarize(outcomes, Terms(slo=Slo(e2e=9, percentile=83.4)))["slo"]["kept"]
    assert summarize(outcomes, Terms())["refused"] == 1


def test_a_single_token_has_no_tpot_to_miss() -> None:
    report = summarize(result([served(0.0, 0.5, 0.5, output=1)]), Terms(slo=Slo(tpot=0.001)))
    assert report["tpot_seconds"] == {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None}
    assert report["slo"]["attainment"] == 1.0


def test_requests_of_the_warm_up_are_left_out() -> None:
    report = summarize(result(FIVE), Terms(warm_up=3.0, slo=Slo(ttft=0.45)))
    assert (report["requests"], report["left_out"]) == (2, 3)
    assert report["seconds"] == pytest.approx(3.5)
    assert report["ttft_seconds"]["mean"] == pytest.approx(0.45)
    assert report["slo"]["attainment"] == 0.5
    nothing = summarize(result(FIVE), Terms(warm_up=99.0, slo=Slo(ttft=0.45)))
    assert (nothing["requests"], nothing["requests_per_second"]) == (0, None)


def test_cost_is_what_all_devices_cost_while_it_lasted() -> None:
    # 6.5 s of 4 devices at 3.6 an hour: 0.026, for 25 output tokens of 75.
    cost = summarize(result(FIVE), Terms(num_devices=4, price_per_hour=3.6))["cost"]
    assert cost["per_hour"] == pytest.approx(14.4)
    assert cost["per_million_output_tokens"] == pytest.approx(0.026 / 25 * 1e6)
    assert cost["per_million_tokens"] == pytest.approx(0.026 / 75 * 1e6)


def test_what_replicas_did() -> None:
    uses = (
        ReplicaUse(6.5, 10, 100, 2, 30, block_seconds=325.0, peak_blocks=80, empty_slot_seconds=520.0),
        ReplicaUse(0.0),
    )
    report = summarize(result(FIVE, *uses), Terms())
    assert report["utilisation"] == pytest.approx(0.5)
    assert (report["preemptions"], report["recomputed_tokens"], report["tokens_per_step"]) == (2, 30, 10.0)
    # 325 block-seconds of 2 replicas × 100 blocks × 6.5 s; 520 empty of 325 × 16 slots.
    assert report["kv"] == pytest.approx(
        {"num_blocks": 100, "block_size": 16, "use": 0.25, "peak": 0.8, "waste": 0.1, "stranded": 0.0}
    )


def test_nothing_served_is_still_json() -> None:
    report = summarize(result([refused(0.0)]), Terms(slo=Slo(ttft=1), price_per_hour=1.0))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert (report["requests"], report["refused"], report["cost"]["per_million_tokens"]) == (0, 1, None)
    assert report["slo"]["attainment"] == 0.0


def test_an_objective_is_read() -> None:
    assert parse_slo("--slo", "ttft=0.5,tpot=0.05", 99.0) == Slo(0.5, 0.05, None, 99.0)
    assert parse_slo("--slo", "e2e=20", 90.0) == Slo(None, None, 20.0, 90.0)


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=x", "ttft=-1", "ttft=nan", "ttft=0", "ttft=1,ttft=2", "itl=1", "ttft=1,"]
)
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^--slo"):
        parse_slo("--slo", text, 99.0)
