"""The estimate for devices that no calibration has met: what it must not contradict, and where it says nothing."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.engine_time import GPU, NATIVE, EngineTimer, elementwise, engine_timer
from pagoda.planning.hardware import Hardware
from tests.planning.specs import llama_7b
from tests.planning.steps import MEASURES, more, step_costs

SPEC = llama_7b()
COSTS = CostModel(SPEC, "BF16", 2)
CPU = Hardware("cpu", 8 << 30, 30e9, {"BF16": 450e9, "Q4_0": 700e9, "F32": 220e9})
CARD = Hardware("card", 80 << 30, 2e12, {"bfloat16": 312e12}, link_bandwidth=300e9)


def timer(hardware: Hardware = CPU, num_devices: int = 1) -> EngineTimer:
    made = engine_timer(SPEC, "BF16", hardware, num_devices)
    assert made is not None
    return made


def test_one_token_takes_the_time_to_read_weights_and_many_that_to_multiply() -> None:
    made = dataclasses.replace(timer(), per_step=0.0, per_row=0.0, per_token=0.0)
    one, many = COSTS.step_cost([(0, 1)]), COSTS.step_cost([(0, 4096)], num_logit_rows=0)
    assert made.seconds(one) == pytest.approx(one.weight_bytes / (NATIVE.weights * 30e9), rel=0.02)
    products = (many.flops - many.attention_flops) / (NATIVE.products * 450e9)
    attention = many.attention_flops / (NATIVE.attention * 450e9)
    assert made.seconds(many) == pytest.approx(products + attention, rel=0.02)


@pytest.mark.parametrize(("hardware", "peak"), [(CPU, 450e9), (CARD, 312e12)])
@pytest.mark.parametrize("rows", [[(500, 1)], [(500, 1)] * 64, [(0, 2048)]])
def test_it_is_slower_than_the_hardware_permits(hardware: Hardware, peak: float, rows: list[tuple[int, int]]) -> None:
    cost = COSTS.step_cost(rows)
    bound = hardware.memory_seconds(cost.weight_bytes + cost.kv_read_bytes)
    assert bound is not None
    assert timer(hardware).seconds(cost) > max(bound, cost.flops / peak)


@given(step_costs(), st.sampled_from(MEASURES))
def test_more_of_anything_never_takes_less_time(cost: StepCost, measure: str) -> None:
    assert timer().seconds(more(cost, measure)) >= timer().seconds(cost) > 0


def test_formats_count_by_their_share_of_the_products() -> None:
    half = engine_timer(SPEC, lambda weight: "Q4_0" if weight.part == "feed_forward" else "BF16", CPU)
    quantized = engine_timer(SPEC, "Q4_0", CPU)
    assert half is not None
    assert quantized is not None
    assert quantized.per_product_flop < half.per_product_flop < timer().per_product_flop


def test_nothing_is_said_without_the_ceilings_that_it_takes() -> None:
    assert engine_timer(SPEC, "BF16", dataclasses.replace(CPU, bandwidth=None)) is None
    assert engine_timer(SPEC, "Q6_K", CPU) is None
    assert engine_timer(SPEC, "BF16", Hardware("told", 1 << 30, 1e9)) is None


def test_a_card_multiplies_quantized_weights_in_what_it_has() -> None:
    made = engine_timer(SPEC, "Q4_0", CARD)
    assert made is not None
    assert made.per_product_flop == pytest.approx(1 / (GPU.products * 312e12))
    assert made.per_weight_byte == pytest.approx(1 / (GPU.weights * 2e12))


def test_two_devices_share_the_work_and_pay_for_talking() -> None:
    cost = COSTS.step_cost([(0, 2048)])
    one, two = timer(CARD), timer(CARD, 2)
    slow = timer(dataclasses.replace(CARD, link_bandwidth=3e9, link_latency=1e-5), 2)
    assert one.seconds(cost) / 2 < two.seconds(cost) < one.seconds(cost)
    layers = len(SPEC.layers)
    talk = 2 * layers * (2 * 1e-5 + 2048 * 2 * SPEC.hidden_size / 3e9)
    silent = timer(dataclasses.replace(CARD, link_bandwidth=None), 2)
    assert slow.seconds(cost) - silent.seconds(cost) == pytest.approx(talk)


def test_elements_of_a_layer() -> None:
    attention, feed_forward = SPEC.layers[0].attention, SPEC.layers[0].feed_forward
    heads = (attention.num_heads + attention.num_kv_heads) * attention.head_dim
    layer = 2 * heads + 3 * feed_forward.intermediate_size + 4 * SPEC.hidden_size
    assert elementwise(SPEC) == len(SPEC.layers) * layer
