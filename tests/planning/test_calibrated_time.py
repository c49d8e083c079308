"""Measured timers: the fit finds what is there, in spite of outliers; files come back as they were, or are refused."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.errors import InvalidValueError, PagodaError
from pagoda.planning.calibrated_time import CalibratedTimer, load_timer
from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.step_fit import fit, nonnegative, robust_nonnegative
from pagoda.planning.step_time import StepTimer
from tests.planning.specs import smollm2
from tests.planning.steps import MEASURES, more, step_costs

TIMER = CalibratedTimer(
    model="tiny",
    flops_per_token=1000,
    machine="cpu",
    version="0.1.0",
    product_flops=(1e9, 2e9, 8e9),
    product_seconds=(0.01, 0.012, 0.03),
    seconds_per_kv_byte=3e-11,
    seconds_per_attention_flop=2e-12,
    seconds_per_row=1e-5,
    request_seconds=0.004,
    spread=(0.9, 1.2),
)


def test_between_points_it_is_linear_and_beyond_the_last_it_goes_on() -> None:
    def products(flops: int) -> float:
        return TIMER.seconds(StepCost(1, flops, 0, 0, 0))

    assert products(10) == products(10**9) == pytest.approx(0.01)
    assert products(15 * 10**8) == pytest.approx(0.011)
    assert products(8 * 10**9) == pytest.approx(0.03)
    assert products(14 * 10**9) == pytest.approx(0.048)
    with_attention = StepCost(7, 10**9 + 10**8, 5, 10**8, 0, attention_flops=10**8, num_rows=3)
    assert TIMER.seconds(with_attention) == pytest.approx(0.01 + 3e-3 + 2e-4 + 3e-5)


@given(step_costs(), st.sampled_from(MEASURES))
def test_more_of_anything_never_takes_less_time(cost: StepCost, measure: str) -> None:
    assert TIMER.seconds(more(cost, measure)) >= TIMER.seconds(cost) > 0


def steps_of_a_server(numbers: random.Random) -> list[StepCost]:
    """Decode steps, prompts alone, and both together, of a small model."""
    costs = CostModel(smollm2(), "Q4_0", 2)
    found = []
    for batch in (1, 2, 4, 8, 16, 32, 64):
        found += [costs.step_cost([(numbers.randint(1, 2000), 1)] * batch) for _ in range(30)]
    for chunk in (2, 4, 8, 16, 32, 64, 128, 256, 512):
        for _ in range(10):
            prompt = (numbers.choice((0, 512, 1024)), chunk)
            found.append(costs.step_cost([prompt]))
            found.append(costs.step_cost([prompt, *[(numbers.randint(1, 2000), 1)] * numbers.randint(1, 40)]))
    return found


def true_seconds(cost: StepCost) -> float:
    products = max(cost.weight_bytes / 40e9, (cost.flops - cost.attention_flops) / 600e9)
    return 1e-3 + products + 2.5e-11 * cost.kv_read_bytes + 3e-12 * cost.attention_flops + 2e-4 * cost.num_rows


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_finds_the_truth_behind_unrest_and_outliers(seed: int) -> None:
    numbers = random.Random(seed)
    costs = steps_of_a_server(numbers)
    measured = [true_seconds(cost) * numbers.lognormvariate(0, 0.03) for cost in costs]
    for index in numbers.sample(range(len(costs)), len(costs) // 12):  # a neighbour took the processor
        measured[index] *= numbers.uniform(2, 20)
    timer = fitted(costs, measured)
    errors = sorted(abs(timer.seconds(cost) / true_seconds(cost) - 1) for cost in costs)
    assert errors[len(errors) // 2] < 0.03
    assert errors[int(0.95 * len(errors))] < 0.08
    assert timer.seconds_per_attention_flop + timer.seconds_per_kv_byte == pytest.approx(2.8e-11, rel=0.15)
    assert timer.seconds_per_row == pytest.approx(2e-4, rel=0.25)
    low, high = timer.spread
    assert 0.9 < low < 1 < high < 20


def test_a_fit_needs_steps_of_different_sizes() -> None:
    cost = CostModel(smollm2(), "Q4_0", 2).step_cost([(5, 1)])
    for costs, seconds in (([], []), ([cost] * 100, [0.1] * 100), ([cost], [0.1])):
        with pytest.raises(PagodaError, match="too few"):
            fitted(costs, seconds)


def test_nonnegative_least_squares_is_optimal() -> None:
    numbers = np.random.default_rng(3)
    for _ in range(30):
        columns, values = numbers.normal(size=(20, 6)), numbers.normal(size=20)
        found = nonnegative(columns, values)
        downhill = columns.T @ (values - columns @ found)
        # Karush, Kuhn and Tucker: no way down but into what is negative.
        assert (found >= 0).all()
        assert (downhill <= 1e-8).all()
        assert np.abs(downhill[found > 0]).max(initial=0) < 1e-8


def test_a_robust_fit_does_not_follow_one_wild_value() -> None:
    columns = np.ones((9, 1))
    values = np.array([1.0] * 8 + [1000.0])
    assert robust_nonnegative(columns, values, np.ones(9))[0] == pytest.approx(1.0, rel=0.05)


def test_a_saved_timer_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "timer.json"
    TIMER.save(path)
    assert load_timer(path) == TIMER
    assert [entry.name for entry in path.parent.iterdir()] == ["timer.json"]


def test_it_says_what_was_measured() -> None:
    timer: StepTimer = TIMER
    assert timer.source == "measured by pagoda bench calibrate: tiny on cpu, Pagoda 0.1.0"


def test_it_is_of_one_model_only() -> None:
    costs = CostModel(smollm2(), "Q4_0", 2)
    dataclasses.replace(TIMER, flops_per_token=costs.flops_per_token).check_model(costs)
    with pytest.raises(InvalidValueError, match="tiny"):
        TIMER.check_model(costs)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": "pagoda-limits"}, "format"),
        ({"format_version": 2}, "format_version"),
        ({"format_version": True}, "format_version"),
        ({"model": 5}, "model"),
        ({"machine": "x" * 1000}, "machine"),
        ({"version": None}, "version"),
        ({"flops_per_token": 0}, "flops_per_token"),
        ({"product_flops": "123"}, "product_flops"),
        ({"product_flops": [1e9]}, "product_flops"),
        ({"product_flops": [1e9, 1e9, 2e9]}, "product_flops"),
        ({"product_flops": [1e9, 2e9, float("inf")]}, "product_flops[2]"),
        ({"product_flops": list(range(100)), "product_seconds": [1] * 100}, "product_flops"),
        ({"product_seconds": [0.01, 0.012]}, "product_flops"),
        ({"product_seconds": [0.01, 0.009, 0.03]}, "product_seconds"),
        ({"product_seconds": [0, 0.012, 0.03]}, "product_seconds"),
        ({"product_seconds": [0.01, float("nan"), 0.03]}, "product_seconds[1]"),
        ({"seconds_per_kv_byte": -1e-12}, "seconds_per_kv_byte"),
        ({"seconds_per_attention_flop": 2}, "seconds_per_attention_flop"),
        ({"seconds_per_row": True}, "seconds_per_row"),
        ({"request_seconds": "now"}, "request_seconds"),
        ({"spread": [1.1, 1.2]}, "spread"),
        ({"spread": [0.9]}, "spread"),
        ({"spread": [0, 1.2]}, "spread"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = tmp_path / "timer.json"
    TIMER.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidValueError) as refused:
        load_timer(path)
    assert refused.value.field == f"{path}: {field}"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b"\x80"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text("[1, 2]"),
        lambda path: path.write_text("{"),
        lambda path: path.write_text(" " * (2 << 20)),
    ],
)
def test_a_file_that_is_no_timer_is_refused(make: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "timer.json"
    make(path)
    with pytest.raises(PagodaError, match=r"timer\.json: "):
        load_timer(path)


def fitted(costs: list[StepCost], seconds: list[float]) -> CalibratedTimer:
    return fit(costs, seconds, model="m", flops_per_token=1, machine="c", version="v", request_seconds=0.0)
