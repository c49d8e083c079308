"""How much fits: monotone, exact at its edges, and the same as what the engine says of itself."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.config import EngineConfig
from pagoda.errors import DoesNotFitError, InvalidValueError
from pagoda.planning.capacity import max_concurrency, max_context
from pagoda.planning.deployment import deploy
from pagoda.planning.devices import parse_device
from pagoda.planning.hardware import Hardware
from pagoda.planning.memory import plan_memory
from pagoda.planning.native_holding import native_holding
from pagoda.planning.planner import make_plan
from pagoda.planning.question import Question
from tests.planning.questions import GIB, on_cpu, small, textbook


def with_memory(question: Question, num_bytes: int) -> Question:
    return replace(question, device=replace(question.device, memory_bytes=num_bytes))


@settings(deadline=None, max_examples=60)
@given(
    memory=st.integers(60_000_000, 4_000_000_000),
    context=st.integers(1, 8192),
    concurrency=st.integers(1, 700),
    block_size=st.sampled_from([1, 16, 128]),
)
def test_capacity_is_exact_and_monotone(memory: int, context: int, concurrency: int, block_size: int) -> None:
    asked = with_memory(small(context=context, concurrency=concurrency, block_size=block_size), memory)
    here = deploy(asked)
    requests, longest = max_concurrency(here), max_context(here)
    assert here.fits(concurrency, context) == (concurrency <= requests) == (context <= longest)
    # At its edges: one more does not fit.
    assert requests == 0 or here.fits(requests, context)
    assert not here.fits(requests + 1, context)
    assert longest == 0 or here.fits(concurrency, longest)
    if longest < asked.spec.context_length:
        assert not here.fits(concurrency, longest + 1)
    # More memory never fits less, a longer context never more.
    more = deploy(with_memory(asked, memory + 100_000_000))
    assert max_concurrency(more) >= requests
    assert max_context(more) >= longest
    if context < 8192:
        assert max_concurrency(deploy(replace(asked, context=context + 1))) <= requests


@settings(deadline=None, max_examples=25)
@given(
    memory=st.integers(50_000_000, 2_000_000_000),
    concurrency=st.integers(1, 64),
    devices=st.sampled_from([1, 2, 4]),
    weights=st.sampled_from(["bf16", "fp8", "int8", "int4"]),
)
def test_parts_sum_to_the_memory(memory: int, concurrency: int, devices: int, weights: str) -> None:
    plan = make_plan(with_memory(small(concurrency=concurrency, num_devices=devices, weight_format=weights), memory))
    held_back = plan.memory_bytes - plan.budget_bytes
    parts = (held_back, plan.weight_bytes, plan.workspace_bytes, plan.kv_bytes_total, plan.left_bytes)
    assert sum(parts) == plan.memory_bytes == devices * memory
    assert plan.fits == (plan.left_bytes >= 0)
    assert plan.kv_bytes_seen == plan.kv_bytes_total  # no windows


@pytest.mark.parametrize("mebibytes", [250, 280, 300, 330, 400, 2000])
@pytest.mark.parametrize("context", [256, 8192])
def test_planner_and_engine_agree_on_this_machine(mebibytes: int, context: int) -> None:
    question = with_memory(on_cpu(context=context, concurrency=4, memory_fraction=0.8), mebibytes << 20)
    config = EngineConfig(max_model_len=context, max_num_seqs=4, memory_fraction=0.8)
    holding = native_holding(question.spec, question.stored, None, 2)
    plan = make_plan(question)
    if not plan.max_concurrency:
        with pytest.raises(DoesNotFitError) as refusal:
            plan_memory(holding, config, usable_bytes=mebibytes << 20)
        assert plan.recommendation.lower() == f"{refusal.value}.".lower()
        return
    engine = plan_memory(holding, config, usable_bytes=mebibytes << 20)
    assert plan.weight_bytes == engine.weight_bytes
    assert plan.workspace_bytes == engine.workspace_bytes
    assert plan.kv_bytes_per_token == engine.kv_bytes_per_token
    assert plan.fits == (engine.num_blocks == 4 * context // 16)


def test_windows_are_seen_but_not_held() -> None:
    spec = small().spec
    windowed = tuple(
        replace(layer, attention=replace(layer.attention, window=256 if index % 2 else None))
        for index, layer in enumerate(spec.layers)
    )
    plan = make_plan(small(spec=replace(spec, layers=windowed)))
    assert plan.kv_bytes_total == make_plan(small()).kv_bytes_total
    # Half of the layers see 256 of 1,024 tokens, in whole blocks and one more.
    assert plan.kv_bytes_seen == plan.kv_bytes_total * (1024 + 272) // 2048


def test_a_quarter_of_a_byte_counts() -> None:
    """int4 is 66 bytes for 128 weights, fp8 a byte and 4 an output; tables, head and norms stay in bf16."""
    spec = small().spec
    others = sum(weight.num_elements for weight in spec.weights if weight.part not in ("attention", "feed_forward"))
    inside = spec.num_parameters - others
    outputs = sum(weight.shape[0] for weight in spec.weights if weight.part in ("attention", "feed_forward"))
    assert make_plan(small(weight_format="int4")).weight_bytes == 2 * others + inside * 66 // 128
    assert make_plan(small(weight_format="fp8")).weight_bytes == 2 * others + inside + 4 * outputs


def test_k_and_v_apart() -> None:
    plan = make_plan(small(kv_format="fp8/int4"))
    assert plan.kv_bytes_per_token == 4 * 2 * (64 + 32 + 4)
    assert plan.kv_format == "fp8/int4"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"context": 8193}, "--context"),
        ({"context": 0}, "--context"),
        ({"concurrency": 0}, "--concurrency"),
        ({"num_devices": 0}, "--devices"),
        ({"num_devices": 3}, "--devices"),
        ({"memory_fraction": 1.5}, "--memory-fraction"),
        ({"memory_fraction": float("nan")}, "--memory-fraction"),
        ({"block_size": 0}, "--block-size"),
        ({"max_batched_tokens": 0}, "--max-batched-tokens"),
        ({"parameters": -1}, "--parameters"),
        ({"weight_format": "int3"}, "--weight-format"),
        ({"kv_format": "fp7"}, "--kv-format"),
        ({"kv_format": "fp8/fp8/fp8"}, "--kv-format"),
        ({"device": Hardware("silent", GIB)}, "--device"),
        ({"device": Hardware("slow", GIB, peak_flops={"bfloat16": 1e12})}, "--device"),
        ({"device": parse_device("flops=1e12,bandwidth=1e12,memory=1e9"), "num_devices": 2}, "--device"),
        ({"threads": 2, "num_devices": 2}, "--devices"),
        ({"threads": 2, "kv_format": "fp8"}, "--kv-format"),
        ({"threads": 2, "weight_format": "fp8"}, "--weight-format"),
    ],
)
def test_refusals_name_the_option(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        make_plan(small(**changes))
    assert error.value.field == field


def test_the_share_of_the_memory_counts() -> None:
    plan = make_plan(textbook(memory_fraction=0.5))
    assert plan.budget_bytes == 40_000_000_000
    assert plan.max_concurrency == (40_000_000_000 - 14_000_000_000 - plan.workspace_bytes) // GIB
