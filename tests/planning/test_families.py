"""The formulas over published models: exact counts, and one cost behind all views of it."""

import pytest

from pagoda.config import EngineConfig
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.models.registry import FAMILIES, spec_for
from pagoda.planning.costs import CostModel
from pagoda.planning.data_flow import data_flow, summed_over_layers
from pagoda.planning.holding import held_format, torch_holding
from pagoda.planning.kv_format import KV_FORMATS, KVFormat
from pagoda.planning.memory import kv_bytes_per_token, plan_memory

# name → (parameters, KV bytes a token in formats of two bytes). The counts are those of transformers' own models, built of the
# same configuration on the meta device; DeepSeek-V3's includes the 58 × 256 biases of its routers, which are in its files.
MODELS = {
    "gpt2": (124_439_808, 36_864),
    "gpt2-medium": (354_823_168, 98_304),
    "gpt2-large": (774_030_080, 184_320),
    "gpt2-xl": (1_557_611_200, 307_200),
    "llama-7b": (6_738_415_616, 524_288),
    "llama-13b": (13_015_864_320, 819_200),
    "llama-2-70b": (68_976_648_192, 327_680),
    "llama-3-8b": (8_030_261_248, 131_072),
    "llama-3-70b": (70_553_706_496, 327_680),
    "llama-3.1-8b": (8_030_261_248, 131_072),
    "qwen2.5-0.5b": (494_032_768, 12_288),
    "qwen2.5-1.5b": (1_543_714_304, 28_672),
    "qwen2.5-7b": (7_615_616_512, 57_344),
    "qwen2.5-14b": (14_770_033_664, 196_608),
    "qwen2.5-32b": (32_763_876_352, 262_144),
    "qwen2.5-72b": (72_706_203_648, 327_680),
    "qwen3-0.6b": (596_049_920, 114_688),
    "qwen3-1.7b": (1_720_574_976, 114_688),
    "qwen3-4b": (4_022_468_096, 147_456),
    "qwen3-8b": (8_190_735_360, 147_456),
    "qwen3-14b": (14_768_307_200, 163_840),
    "qwen3-32b": (32_762_123_264, 262_144),
    "qwen3-30b-a3b": (30_532_122_624, 98_304),
    "mistral-7b": (7_241_732_096, 131_072),
    "mixtral-8x7b": (46_702_792_704, 131_072),
    "gemma-3-27b": (27_009_346_304, 507_904),
    "deepseek-v3": (671_026_419_200, 70_272),
}
# What their authors call active.
ACTIVE = {"mixtral-8x7b": 12.9e9, "qwen3-30b-a3b": 3.3e9, "deepseek-v3": 37e9}
FIT_IN_80_GIB = [name for name, (parameters, _) in MODELS.items() if parameters < 15e9]


def test_every_shape_and_every_family_is_here() -> None:
    assert set(MODELS) == set(NAMED_SHAPES)
    families = {family.name for family in FAMILIES for name in MODELS if kind(name) in family.model_types}
    assert families == {family.name for family in FAMILIES}


def kind(name: str) -> str:
    model_type = NAMED_SHAPES[name].config["model_type"]
    assert isinstance(model_type, str)
    return model_type


@pytest.mark.parametrize("name", list(MODELS))
def test_published_sizes(name: str) -> None:
    parameters, kv_bytes = MODELS[name]
    spec = spec_for(NAMED_SHAPES[name].config)
    assert spec.num_parameters == parameters
    assert kv_bytes_per_token(spec, 2) == kv_bytes


@pytest.mark.parametrize("name", list(MODELS))
def test_active_parameters(name: str) -> None:
    spec = spec_for(NAMED_SHAPES[name].config)
    if name in ACTIVE:
        assert spec.active_parameters == pytest.approx(ACTIVE[name], rel=0.02)
    else:
        assert spec.active_parameters == spec.num_parameters


def test_exact_active_parameters_of_mixtral() -> None:
    # All but 6 of 8 experts, three matrices each, in 32 layers.
    spec = spec_for(NAMED_SHAPES["mixtral-8x7b"].config)
    assert spec.active_parameters == 46_702_792_704 - 32 * 6 * 3 * 4096 * 14_336 == 12_879_925_248


def test_latent_attention_caches_one_vector_a_token() -> None:
    spec = spec_for(NAMED_SHAPES["deepseek-v3"].config)
    assert kv_bytes_per_token(spec, 2) == 61 * (512 + 64) * 2
    # A formula for ordinary attention, of 128 heads with keys of 192 and values of 128 elements, would say 71 times as much.
    assert kv_bytes_per_token(spec, 2) * 71 < 61 * 128 * (192 + 128) * 2
    # One row of 576 elements and a scale; its values are made of it.
    assert kv_bytes_per_token(spec, (KVFormat("int8", 8, 2), KV_FORMATS["int4"])) == 61 * (576 + 2)


def test_gemma_has_one_layer_of_six_that_sees_everything() -> None:
    spec = spec_for(NAMED_SHAPES["gemma-3-27b"].config)
    windows = [layer.attention.window for layer in spec.layers]
    assert windows.count(None) == 10
    assert windows.count(1024) == 52
    assert windows[:7] == [1024] * 5 + [None, 1024]
    assert spec.layers[0].attention.scale == 168**-0.5


def test_deepseek_has_three_dense_layers() -> None:
    layers = spec_for(NAMED_SHAPES["deepseek-v3"].config).layers
    assert [layer.feed_forward.experts is None for layer in layers[:4]] == [True, True, True, False]
    assert layers[-1].feed_forward.active_size == 8 * 2048 + 2048


@pytest.mark.parametrize("name", list(MODELS))
def test_the_data_flow_leaves_nothing_out(name: str) -> None:
    spec = spec_for(NAMED_SHAPES[name].config)
    rows = [(0, 600), (1500, 1), (700, 40)]
    held = held_format(2)
    parts = data_flow(spec, rows, format_of=held, element_bytes=2)
    cost = CostModel(spec, held, 2).step_cost(rows)
    assert sum(part.flops for part in parts) == cost.flops
    assert sum(part.weight_bytes for part in parts) == cost.weight_bytes
    assert sum(part.kv_read_bytes for part in parts) == cost.kv_read_bytes
    assert sum(part.kv_written_bytes for part in parts) == cost.kv_written_bytes
    for part in summed_over_layers(parts):
        if part.name in ("q, k, v", "attention output", "router", "down", "head"):
            assert part.flops > 0
            assert part.weight_bytes > 0


def test_a_window_bounds_what_a_far_token_costs() -> None:
    model = CostModel(spec_for(NAMED_SHAPES["mistral-7b"].config), held_format(2), 2)
    near, far = model.step_cost([(4096, 1)]), model.step_cost([(30_000, 1)])
    assert far == near
    assert near.kv_read_bytes == 4096 * 131_072


@pytest.mark.parametrize("name", FIT_IN_80_GIB)
def test_every_model_that_fits_can_be_planned(name: str) -> None:
    _, kv_bytes = MODELS[name]
    spec = spec_for(NAMED_SHAPES[name].config)
    plan = plan_memory(torch_holding(spec, 2), EngineConfig(memory_fraction=0.9), usable_bytes=80 << 30)
    assert plan.max_model_len == spec.context_length
    assert plan.kv_bytes == plan.num_kv_tokens * kv_bytes
    assert sum(entry.num_bytes for entry in plan.entries) == 80 << 30
