"""GGUF metadata in Hugging Face's names."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.errors import ModelFileError
from pagoda.loading.checkpoint import TensorInfo
from pagoda.loading.gguf_config import gguf_config, gguf_generation_config

EMBEDDING = {"token_embd.weight": TensorInfo("token_embd.weight", (100, 64), "F32", 25600)}
LLAMA = {
    "general.architecture": "llama",
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 96,
    "llama.context_length": 512,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500000.0,
    "llama.rope.dimension_count": 16,
}


def config_of(more: dict[str, Any], tensors: dict[str, TensorInfo] = EMBEDDING) -> dict[str, Any]:
    return gguf_config({**LLAMA, **more}, tensors, "f.gguf")


def test_names() -> None:
    assert config_of({"llama.attention.sliding_window": 128}) == {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": None,
        "sliding_window": 128,
        "tie_word_embeddings": True,
        "vocab_size": 100,
    }


def test_the_prefix_is_the_architecture_whatever_that_is() -> None:
    metadata = {"general.architecture": "new-thing", "new-thing.block_count": 3, "llama.block_count": 4}
    config = gguf_config(metadata, {}, "f.gguf")
    assert (config["model_type"], config["num_hidden_layers"]) == ("new-thing", 3)


def test_an_output_tensor_unties_the_head() -> None:
    output = {**EMBEDDING, "output.weight": TensorInfo("output.weight", (100, 64), "F32", 25600)}
    assert config_of({}, output)["tie_word_embeddings"] is False


def test_vocabulary_without_an_embedding_tensor() -> None:
    assert config_of({"llama.vocab_size": 7, "tokenizer.ggml.tokens": ["a"]}, {})["vocab_size"] == 7
    assert config_of({"tokenizer.ggml.tokens": ["a", "b"]}, {})["vocab_size"] == 2


def test_key_length_goes_before_the_quotient() -> None:
    config = config_of({"llama.attention.key_length": 32, "llama.rope.dimension_count": 32})
    assert config["head_dim"] == 32
    assert "partial_rotary_factor" not in config


def test_rope_over_a_part_of_each_head() -> None:
    assert config_of({"llama.rope.dimension_count": 4})["partial_rotary_factor"] == 0.25


def test_values_of_another_length_than_keys_are_kept_for_refusal() -> None:
    lengths = {"llama.attention.key_length": 16, "llama.attention.value_length": 16}
    assert "v_head_dim" not in config_of(lengths)
    assert config_of({**lengths, "llama.attention.value_length": 8})["v_head_dim"] == 8


@pytest.mark.parametrize(
    ("more", "scaling"),
    [
        ({"llama.rope.scaling.type": "none"}, None),
        ({"llama.rope.scale_linear": 1.0}, None),
        ({"llama.rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
            {"rope_type": "linear", "factor": 2.0},
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 128,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        ),
    ],
)
def test_rope_scaling(more: dict[str, Any], scaling: dict[str, Any] | None) -> None:
    assert config_of(more)["rope_scaling"] == scaling


def test_per_layer_lists() -> None:
    assert config_of({"llama.attention.head_count_kv": [2, 2]})["num_key_value_heads"] == 2
    assert config_of({"llama.attention.head_count_kv": [2, 1]})["num_key_value_heads"] == [2, 1]
    types = config_of({"llama.attention.sliding_window_pattern": [True, False]})["layer_types"]
    assert types == ["sliding_attention", "full_attention"]
    assert config_of({"llama.attention.sliding_window_pattern": 6})["sliding_window_pattern"] == 6


def test_experts_are_kept_for_refusal() -> None:
    assert config_of({"llama.expert_count": 8})["num_local_experts"] == 8


def test_generation_config() -> None:
    metadata = {
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 7,
        "tokenizer.ggml.eom_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
    }
    assert gguf_generation_config(metadata) == {
        "bos_token_id": 1,
        "pad_token_id": 0,
        "eos_token_id": [2, 7],
        "temperature": 0.7,
        "top_k": 20,
    }
    assert gguf_generation_config({}) == {}


@pytest.mark.parametrize("value", [None, 3, ["llama"]])
def test_the_architecture_must_be_named(value: object) -> None:
    with pytest.raises(ModelFileError, match=r"general\.architecture is"):
        gguf_config({} if value is None else {"general.architecture": value}, {}, "f.gguf")
