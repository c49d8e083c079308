"""The textbook's example comes out, and so do llama-7b's own exact figures."""

import pytest

from pagoda.planning.devices import parse_device
from pagoda.planning.plan import Formula, Plan
from pagoda.planning.planner import make_plan
from tests.planning.questions import textbook


def formula(plan: Plan, name: str) -> Formula:
    return next(formula for formula in plan.formulas if formula.name == name)


def test_memory() -> None:
    plan = make_plan(textbook())
    assert plan.weight_bytes == 14_000_000_000
    assert plan.kv_bytes_per_token == 524_288
    assert plan.kv_bytes_total == 16 << 30
    assert plan.kv_bytes_total > (plan.weight_bytes + plan.workspace_bytes + plan.kv_bytes_total) / 2
    assert make_plan(textbook(concurrency=1)).kv_bytes_total == 1 << 30
    assert (plan.num_parameters, plan.active_parameters) == (7_000_000_000, 7_000_000_000)


def test_a_decode_token_without_its_cache() -> None:
    decode = make_plan(textbook(concurrency=1, weights_only=True)).decode
    assert (decode.flops, decode.weight_bytes, decode.kv_bytes) == (14_000_000_000, 14_000_000_000, 0)
    assert 1e3 * decode.compute_seconds == pytest.approx(0.0449, abs=5e-5)
    assert 1e3 * decode.memory_seconds == pytest.approx(7.00, abs=5e-3)
    assert decode.limit == "memory"


def test_a_decode_token_with_its_cache() -> None:
    """The cache's share stands apart, and so do the operations of attention: 4 × 32 × 32 × 128 × 2,048."""
    decode = make_plan(textbook(concurrency=1)).decode
    assert (decode.weight_bytes, decode.kv_bytes) == (14_000_000_000, (1 << 30) + 524_288)
    assert decode.flops == 14_000_000_000 + (1 << 30)
    assert decode.memory_seconds == pytest.approx((14_000_000_000 + (1 << 30) + 524_288) / 2e12)


def test_formulas_have_the_numbers_in() -> None:
    plan = make_plan(textbook())
    assert str(formula(plan, "weights")) == "7,000,000,000 × 2 B = 14,000,000,000 B"
    assert str(formula(plan, "K and V of a token")) == "2 × 32 layers × 32 heads × 128 × 2 B = 524,288 B/token"
    assert str(formula(plan, "products of a token")) == "2 × 7,000,000,000 weights = 14,000,000,000 FLOP/token"
    said = "14,000,000,000 FLOP ÷ 312 TFLOP/s (float16) = 0.04487 ms"
    assert str(formula(plan, "compute of these")) == said
    assert str(formula(plan, "reading weights")) == "14,000,000,000 B ÷ 2 TB/s = 7 ms"
    assert "16.00 GiB, 17.18 GB" in str(formula(plan, "K and V of all requests"))


def test_the_exact_model_on_the_datasheet() -> None:
    plan = make_plan(textbook(parameters=None, device=parse_device("a100-80g"), concurrency=1))
    assert plan.num_parameters == 6_738_415_616
    assert plan.weight_bytes == 2 * 6_738_415_616
    products = 6_738_415_616 - 32_000 * 4096 - 65 * 4096  # without the table and the norms
    assert plan.decode.flops == 2 * products + (1 << 30)
    read = 2 * (6_738_415_616 - 32_000 * 4096 + 4096)  # one row of the table
    assert plan.decode.weight_bytes == read
    assert plan.decode.memory_seconds == pytest.approx((read + (1 << 30) + 524_288) / 2039e9)
    assert plan.ridge == pytest.approx(312e12 / 2039e9)
    terms = "32 layers × 202,383,360 + embedding 131,072,000 + norm 4,096 + head 131,072,000"
    assert formula(plan, "parameters").terms == terms


def test_the_ledger_sums_to_the_memory() -> None:
    for question in (textbook(), textbook(device=parse_device("rtx-4090")), textbook(weight_format="int4")):
        plan = make_plan(question)
        held_back = plan.memory_bytes - plan.budget_bytes
        parts = (held_back, plan.weight_bytes, plan.workspace_bytes, plan.kv_bytes_total, plan.left_bytes)
        assert sum(parts) == question.device.memory_bytes
        assert plan.fits == (plan.left_bytes >= 0)


def test_the_command_has_options_that_exist() -> None:
    plan = make_plan(textbook())
    wanted = "pagoda serve huggyllama/llama-7b --device cuda --dtype float16 --max-model-len 2048 --max-num-seqs 16"
    assert plan.serve_command == f"{wanted} --memory-fraction 0.9"
    assert "cannot serve" not in plan.recommendation
    narrow = make_plan(textbook(weight_format="int4", kv_format="fp8"))
    assert "--device cuda --dtype bfloat16 --quantization int4 --kv-cache-dtype fp8" in narrow.serve_command
    assert "cannot serve" not in narrow.recommendation
