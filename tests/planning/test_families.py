"""The formulas over every family's own description, with the published sizes of real models."""

from typing import Any

import pytest

from pagoda.config import EngineConfig
from pagoda.models.registry import FAMILIES, family_for
from pagoda.planning.costs import CostModel
from pagoda.planning.data_flow import data_flow, summed_over_layers
from pagoda.planning.holding import held_format, torch_holding
from pagoda.planning.memory import kv_bytes_per_token, plan_memory

# name → (config, parameters, KV bytes a token in two-byte formats)
MODELS: dict[str, tuple[dict[str, Any], int, int]] = {
    "gpt2": (
        {
            "model_type": "gpt2",
            "vocab_size": 50_257,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "max_position_embeddings": 1024,
        },
        124_439_808,
        36_864,
    ),
    "llama-7b": (
        {
            "model_type": "llama",
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
        6_738_415_616,
        524_288,
    ),
    "mistral-7b": (
        {
            "model_type": "mistral",
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 32_768,
            "sliding_window": 4096,
        },
        7_241_732_096,
        131_072,
    ),
    "qwen2.5-0.5b": (
        {
            "model_type": "qwen2",
            "vocab_size": 151_936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": True,
        },
        494_032_768,
        12_288,
    ),
    "qwen3-0.6b": (
        {
            "model_type": "qwen3",
            "vocab_size": 151_936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40_960,
            "tie_word_embeddings": True,
        },
        596_049_920,
        114_688,
    ),
    "gemma3-1b": (
        {
            "model_type": "gemma3_text",
            "vocab_size": 262_144,
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_hidden_layers": 26,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "max_position_embeddings": 32_768,
            "sliding_window": 512,
            "query_pre_attn_scalar": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
        },
        999_885_952,
        26_624,
    ),
}


def test_every_family_is_here() -> None:
    assert {family_for(config).name for config, _, _ in MODELS.values()} == {family.name for family in FAMILIES}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_published_sizes(name: str) -> None:
    config, parameters, kv_bytes = MODELS[name]
    spec = family_for(config).spec(config)
    assert spec.num_parameters == parameters
    assert kv_bytes_per_token(spec, 2) == kv_bytes


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_data_flow_leaves_nothing_out(name: str) -> None:
    config, _, _ = MODELS[name]
    spec = family_for(config).spec(config)
    rows = [(0, 600), (5000, 1), (700, 40)]
    held = held_format(2)
    parts = data_flow(spec, rows, format_of=held, element_bytes=2)
    cost = CostModel(spec, held, 2).step_cost(rows)
    assert sum(part.flops for part in parts) == cost.flops
    assert sum(part.weight_bytes for part in parts) == cost.weight_bytes
    assert sum(part.kv_read_bytes for part in parts) == cost.kv_read_bytes
    assert sum(part.kv_written_bytes for part in parts) == cost.kv_written_bytes
    for part in summed_over_layers(parts):
        if part.name in ("q, k, v", "attention output", "down", "head"):
            assert part.flops > 0
            assert part.weight_bytes > 0


def test_a_window_bounds_what_a_far_token_costs() -> None:
    config, _, _ = MODELS["mistral-7b"]
    model = CostModel(family_for(config).spec(config), held_format(2), 2)
    near, far = model.step_cost([(4096, 1)]), model.step_cost([(30_000, 1)])
    assert far == near
    assert near.kv_read_bytes == 4096 * 131_072


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_can_be_planned(name: str) -> None:
    config, _, kv_bytes = MODELS[name]
    spec = family_for(config).spec(config)
    plan = plan_memory(torch_holding(spec, 2), EngineConfig(memory_fraction=0.9), usable_bytes=80 << 30)
    assert plan.max_model_len == spec.context_length
    assert plan.kv_bytes == plan.num_kv_tokens * kv_bytes
    assert sum(entry.num_bytes for entry in plan.entries) == 80 << 30
