"""A mixture of experts: a token computes its own, a step reads those that any of its tokens is sent to."""

import random
from dataclasses import replace

import pytest

from pagoda.models.describe import describe_model
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.registry import spec_for
from pagoda.planning.costs import CostModel, experts_touched
from pagoda.planning.cpu_formats import cpu_holding
from pagoda.planning.hardware import Hardware, main_format
from pagoda.planning.holding import weight_bytes
from pagoda.planning.model_spec import ExpertsSpec, FeedForwardSpec, LayerSpec, ModelSpec, WeightSpec
from pagoda.planning.native_formats import PackedFormat, packed_bytes
from pagoda.planning.native_holding import native_holding
from pagoda.planning.question import Question
from pagoda.planning.workspace import activation_bytes


def mixtral() -> ModelSpec:
    return spec_for(NAMED_SHAPES["mixtral-8x7b"].config)


ONE_EXPERT = 32 * 3 * 4096 * 14_336  # parameters, in all layers


def test_a_token_takes_two_flops_a_parameter_that_it_passes_through() -> None:
    spec = mixtral()
    model = CostModel(spec, "bfloat16", 2)
    embedding, gains = 32_000 * 4096, 65 * 4096
    scores = 4 * 32 * 4096  # of one key
    assert model.step_cost([(0, 1)]).flops == 2 * (spec.active_parameters - embedding - gains) + scores


def test_one_token_reads_its_own_experts_and_many_read_all() -> None:
    spec = mixtral()
    model = CostModel(spec, "bfloat16", 2)
    rest = 2 * (spec.num_parameters - 8 * ONE_EXPERT - 32_000 * 4096)  # one row of the table is read
    row = 2 * 4096
    assert model.step_cost([(0, 1)]).weight_bytes == rest + row + 2 * 2 * ONE_EXPERT
    assert model.step_cost([(0, 2)]).weight_bytes == pytest.approx(rest + 2 * row + 2 * 3.5 * ONE_EXPERT, rel=1e-9)
    assert model.step_cost([(0, 2048)]).weight_bytes == rest + 2048 * row + 2 * 8 * ONE_EXPERT


def test_a_step_of_nothing_reads_nothing() -> None:
    assert CostModel(mixtral(), "bfloat16", 2).step_cost([]).num_bytes == 0


@pytest.mark.parametrize(("count", "per_token", "num_tokens"), [(8, 2, 3), (128, 8, 20), (256, 8, 64)])
def test_the_experts_touched_are_those_of_tokens_that_choose_evenly(
    count: int, per_token: int, num_tokens: int
) -> None:
    draw = random.Random(7)
    rounds = 400
    touched = [
        len({expert for _ in range(num_tokens) for expert in draw.sample(range(count), per_token)})
        for _ in range(rounds)
    ]
    assert experts_touched(ExpertsSpec(count, per_token), num_tokens) == pytest.approx(sum(touched) / rounds, rel=0.02)


def test_the_main_format_is_that_of_what_a_token_computes() -> None:
    spec = mixtral()

    def held(weight: WeightSpec) -> str:
        return "Q4_0" if weight.part == "experts" else "BF16"

    assert main_format(spec, held) == "Q4_0"
    # With one expert in many, most of a token's products are dense ones, although most weights are not.
    experts = ExpertsSpec(8, 1)
    narrow = replace(spec.layers[0].feed_forward, intermediate_size=64, experts=experts)
    layers = tuple(replace(layer, feed_forward=narrow) for layer in spec.layers)
    weights = tuple(
        replace(weight, shape=(8, *(64 if size == 14_336 else size for size in weight.shape[1:])))
        if weight.part == "experts"
        else weight
        for weight in spec.weights
    )
    assert main_format(replace(spec, layers=layers, weights=weights), held) == "BF16"


def test_stacks_of_experts_are_packed_one_by_one() -> None:
    assert PackedFormat("Q4_0").tensor_bytes((8, 48, 64)) == 8 * packed_bytes("Q4_0", 48, 64)
    assert weight_bytes(mixtral(), "Q8_0") == mixtral().num_parameters // 32 * 34


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"])
def test_workspace_grows_with_what_a_token_computes(name: str) -> None:
    spec = spec_for(NAMED_SHAPES[name].config)
    limits = {"max_batched_tokens": 512, "max_num_seqs": 16, "max_model_len": 4096}
    native = native_holding(spec, "BF16", None, 2)
    assert native.weight_bytes >= 2 * spec.num_parameters
    assert native.workspace(**limits) > native.workspace(**{**limits, "max_batched_tokens": 64})
    # Without a vocabulary the layers are what takes most.
    plain = replace(spec, vocab_size=1000)
    wide = replace(plain, layers=tuple(replace(layer, feed_forward=wider(layer)) for layer in spec.layers))
    assert activation_bytes(wide, element_bytes=2, **limits) > activation_bytes(plain, element_bytes=2, **limits)


def wider(layer: LayerSpec) -> FeedForwardSpec:
    """Twice as many experts a token."""
    experts = layer.feed_forward.experts
    more = None if experts is None else replace(experts, per_token=2 * experts.per_token)
    return replace(layer.feed_forward, experts=more)


def test_what_only_gpus_hold_is_bf16_on_the_cpu() -> None:
    described = describe_model("deepseek-v3")
    question = Question(
        model="deepseek-v3",
        spec=described.spec,
        stored=described.stored,
        device=Hardware("a CPU", 64 << 30),
        context=2048,
        concurrency=1,
        threads=2,
    )
    assert cpu_holding(question).weight_bytes == pytest.approx(2 * described.spec.num_parameters, rel=0.001)
