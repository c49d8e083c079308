"""Time bounds: which limit binds, where decode turns, tensor parallelism, experts, and estimates apart from bounds."""

from dataclasses import dataclass, replace

import pytest

from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.planned import PLANNED
from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.deployment import deploy
from pagoda.planning.devices import DEVICES, parse_device
from pagoda.planning.model_spec import ModelSpec
from pagoda.planning.planner import make_plan
from tests.planning.questions import on_cpu, small, textbook


def planned(name: str) -> ModelSpec:
    config = NAMED_SHAPES[name].config
    return PLANNED[config["model_type"]](config)


@pytest.mark.parametrize("context", [1, 100, 1000])
def test_decode_turns_where_it_says(context: int) -> None:
    question = small(context=context, device=parse_device("flops=1e12,bandwidth=1e11,memory=1e9"))
    turning = make_plan(question).compute_bound_from
    assert turning is not None
    here = deploy(question)
    assert here.decode_bound(turning, context).limit == "compute"
    assert turning == 1 or here.decode_bound(turning - 1, context).limit == "memory"


def test_reading_k_and_v_can_keep_it_from_turning() -> None:
    assert make_plan(textbook()).compute_bound_from is None
    # Without it, weights are read once for all: each request adds 14 GFLOP, and 14 GB take 7 ms.
    turning = make_plan(textbook(weights_only=True)).compute_bound_from
    assert turning == 156  # the ridge: 2 FLOP and 2 bytes a weight


def test_grouped_queries_turn_earlier() -> None:
    """Eight queries to a K/V head: the same operations over an eighth of the bytes."""
    device = parse_device("flops=1e12,bandwidth=1e11,memory=80e9")
    turning = make_plan(small(context=8192, device=device)).compute_bound_from
    shorter = make_plan(small(context=64, device=device)).compute_bound_from
    assert shorter is not None
    assert turning is None or turning > shorter


def test_a_step_of_many_is_many_steps_that_share_the_weights() -> None:
    here = deploy(small())
    costs = CostModel(here.spec, here.holding.format_of, here.holding.kv_held)
    for batch in (1, 7, 100):
        assert here.decode_cost(batch, 1024) == costs.step_cost([(1023, 1)] * batch)


def test_experts_are_read_as_they_are_touched() -> None:
    spec = planned("mixtral-8x7b")
    question = textbook(spec=spec, parameters=None, stored="BF16", device=DEVICES["mi325x"], context=1024)
    here = deploy(question)
    costs = CostModel(here.spec, here.holding.format_of, here.holding.kv_held)
    assert here.decode_cost(5, 1024) == costs.step_cost([(1023, 1)] * 5)
    alone, crowd = here.decode_cost(1, 1024).weight_bytes, here.decode_cost(64, 1024).weight_bytes
    assert alone == pytest.approx(2 * spec.active_parameters, rel=0.02)
    assert crowd == pytest.approx(2 * spec.num_parameters, rel=0.02)
    plan = make_plan(question)
    assert plan.active_parameters == spec.active_parameters < plan.num_parameters
    # A count of one's own keeps the share that is active.
    halved = make_plan(replace(question, parameters=spec.num_parameters // 2))
    assert halved.active_parameters == pytest.approx(spec.active_parameters / 2)
    assert halved.decode.flops < plan.decode.flops
    assert halved.decode.weight_bytes == pytest.approx(plan.decode.weight_bytes / 2, rel=0.02)


def test_latents_are_on_every_device() -> None:
    spec = planned("deepseek-v3")
    question = textbook(spec=spec, parameters=None, stored="BF16", device=DEVICES["b200"], weight_format="fp8")
    one, eight = make_plan(question), make_plan(replace(question, num_devices=8))
    assert one.kv_bytes_per_token == 61 * (512 + 64) * 2
    assert eight.kv_bytes_per_token == 8 * one.kv_bytes_per_token
    assert eight.weight_bytes == pytest.approx(one.weight_bytes, rel=0.02)  # but for what makes latents


def test_two_devices_halve_weights_and_cache() -> None:
    one, two = deploy(small()), deploy(small(num_devices=2))
    norms = sum(weight.num_elements for weight in one.spec.weights if weight.part == "norm")
    assert 2 * (two.holding.weight_bytes - 2 * norms) == one.holding.weight_bytes - 2 * norms
    assert make_plan(small()).kv_bytes_total == make_plan(small(num_devices=2)).kv_bytes_total
    assert two.costs.flops_per_token * 2 == one.costs.flops_per_token
    assert two.costs.flops_per_logit_row * 2 == one.costs.flops_per_logit_row


def test_few_kv_heads_are_replicated() -> None:
    """Two K/V heads on four devices: each holds one, so the group holds them twice."""
    assert make_plan(small(num_devices=4)).kv_bytes_total == 2 * make_plan(small(num_devices=2)).kv_bytes_total
    k = next(weight for weight in deploy(small(num_devices=4)).spec.weights if weight.name == "layers.0.k")
    assert k.shape == (64, 512)


def test_links() -> None:
    """A ring of n moves (n − 1)/n of the bytes in n − 1 turns, twice for a sum: 2 a layer and one for the embedding."""
    device = parse_device("flops=1e13,bandwidth=1e11,memory=1e9,link=1e10,latency=1e-6")
    plan = make_plan(small(num_devices=4, device=device, concurrency=3))
    sums = 9 * 2 * (3 / 4 * 3 * 512 * 2 / 1e10 + 3 * 1e-6)
    logits = 3 / 4 * 3 * 8192 * 2 / 1e10 + 3 * 1e-6
    assert plan.decode.communication_seconds == pytest.approx(sums + logits)
    assert plan.decode.seconds == pytest.approx(plan.decode.memory_seconds + sums + logits)
    assert make_plan(small()).decode.communication_seconds == 0
    slow = replace(device, link_bandwidth=1e7)
    assert make_plan(small(num_devices=4, device=slow)).decode.limit == "communication"


def test_weights_compute_in_what_the_device_has() -> None:
    h100, a100 = DEVICES["h100-sxm"], DEVICES["a100-80g"]
    named = {name: deploy(small(device=h100, weight_format=name)).compute_format for name in ("bf16", "fp8", "int4")}
    assert named == {"bf16": "bfloat16", "fp8": "fp8", "int4": "bfloat16"}
    assert deploy(small(device=a100, weight_format="fp8")).compute_format == "bfloat16"
    assert deploy(small(device=DEVICES["v100-32g"])).compute_format == "float16"
    assert deploy(on_cpu(weight_format="int4")).compute_format == "Q4_0"


def test_formats_change_what_they_should() -> None:
    plan = make_plan(small(device=DEVICES["h100-sxm"]))
    rows = {(change.weight_format, change.kv_format): change for change in plan.formats}
    assert set(rows) == {(w, k) for w in ("bf16", "fp8", "int8", "int4") for k in ("bf16", "fp8")}
    own = plan.formats[0]
    assert (own.weight_format, own.kv_format) == ("bf16", "bf16")
    assert (own.weight_bytes, own.max_concurrency, own.decode) == (plan.weight_bytes, plan.max_concurrency, plan.decode)
    assert rows["bf16", "fp8"].kv_bytes_per_token * 2 == own.kv_bytes_per_token
    assert rows["int4", "fp8"].max_concurrency > own.max_concurrency
    cpu = make_plan(on_cpu())
    assert [(change.weight_format, change.kv_format) for change in cpu.formats] == [
        ("bf16", "bf16"),
        ("bf16", "int8"),
        ("int8", "bf16"),
        ("int8", "int8"),
        ("int4", "bf16"),
        ("int4", "int8"),
    ]


def test_files_that_are_quantized_already() -> None:
    plan = make_plan(small(stored="Q4_K", device=DEVICES["a100-80g"]))
    assert plan.weight_format == "Q4_K"
    assert plan.weight_bytes * 256 == small().spec.num_parameters * 144
    assert plan.formats[0].weight_format == "Q4_K"
    assert "blocks" not in plan.serve_command
    assert "--quantization" not in plan.serve_command
    assert "cannot serve" not in plan.recommendation


@dataclass
class Timer:
    """A nanosecond a byte."""

    source: str = "a test"
    request_seconds: float = 0.0
    spread: tuple[float, float] = (0.9, 1.2)

    def seconds(self, cost: StepCost) -> float:
        return cost.num_bytes * 1e-9


def test_estimates_are_the_timers() -> None:
    bounds, plan = make_plan(small()), make_plan(small(timer=Timer()))
    assert bounds.decode_estimate is bounds.prefill_estimate is None
    assert plan.decode == bounds.decode
    assert plan.decode_estimate is not None
    expected = (plan.decode.weight_bytes + plan.decode.kv_bytes) * 1e-9
    assert plan.decode_estimate.expected == pytest.approx(expected)
    assert plan.decode_estimate.low == pytest.approx(0.9 * expected)
    assert plan.decode_estimate.high == pytest.approx(1.2 * expected)
    # The engine reads its weights for each chunk of a prompt, which the bound does not.
    assert plan.prefill_estimate is not None
    assert plan.prefill_estimate.expected > 1.5 * (plan.prefill.weight_bytes + plan.prefill.kv_bytes) * 1e-9
    assert all(point.estimate_seconds for point in plan.throughput)
    assert (plan.estimate_source, bounds.estimate_source) == ("a test", "")


def test_throughput_covers_what_fits_and_what_is_asked() -> None:
    plan = make_plan(small(concurrency=3))
    batches = [point.batch for point in plan.throughput]
    assert batches[:4] == [1, 2, 3, 4]
    assert batches[-1] == plan.max_concurrency
    assert all(point.fits for point in plan.throughput)
    crowded = make_plan(small(concurrency=5000))
    assert crowded.throughput[-1].batch == 5000
    assert [point.batch for point in crowded.throughput if point.fits][-2:] == [64, crowded.max_concurrency]
    assert crowded.max_concurrency < 512
    rates = [point.tokens_per_second for point in plan.throughput]
    assert rates == sorted(rates)
