"""config.json in one vocabulary, whatever wrote it."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.errors import ModelFileError
from pagoda.loading.hf_config import normalised_config

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def normalised(**raw: Any) -> dict[str, Any]:
    return normalised_config({"model_type": "llama", **raw}, "config.json")


@pytest.mark.parametrize(
    ("raw", "theta", "scaling"),
    [
        ({}, None, None),
        ({"rope_theta": 10000}, 10000.0, None),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, None, {"rope_type": "linear", "factor": 2.0}),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            5e5,
            {"rope_type": "llama3", **LLAMA3},
        ),
        # Some files carry both spellings; the newer one counts.
        (
            {"rope_scaling": {"type": "dynamic", "rope_type": "linear", "factor": 2.0}},
            None,
            {"rope_type": "linear", "factor": 2.0},
        ),
        ({"rope_scaling": {"rope_type": "default"}}, None, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6, None),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
            5e5,
            {"rope_type": "llama3", **LLAMA3},
        ),
    ],
)
def test_rope(raw: dict[str, Any], theta: float | None, scaling: dict[str, Any] | None) -> None:
    config = normalised(**raw)
    assert config.get("rope_theta") == theta
    assert theta is None or type(config["rope_theta"]) is float
    assert config["rope_scaling"] == scaling
    assert "rope_parameters" not in config


def test_rope_per_layer_type() -> None:
    parameters = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000},
    }
    config = normalised(rope_parameters=parameters)
    assert config["rope_theta"] == 1e6
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    assert config["rope_local_base_freq"] == 1e4
    assert config["rope_parameters"] == parameters


def test_a_multimodal_model_s_text_config_is_lifted() -> None:
    config = normalised_config(
        {
            "model_type": "gemma3",
            "architectures": ["Gemma3ForConditionalGeneration"],
            "eos_token_id": [1, 106],
            "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "architectures": None},
        },
        "config.json",
    )
    assert config["model_type"] == "gemma3_text"
    assert config["hidden_size"] == 64
    assert config["architectures"] == ["Gemma3ForConditionalGeneration"]
    assert config["eos_token_id"] == [1, 106]
    assert "text_config" not in config


def test_gpt2_names_get_the_standard_ones_beside_them() -> None:
    config = normalised(n_embd=64, n_layer=2, n_head=4, n_positions=128, n_inner=None, activation_function="gelu_new")
    assert config["hidden_size"] == config["n_embd"] == 64
    assert config["num_hidden_layers"] == 2
    assert config["num_attention_heads"] == 4
    assert config["max_position_embeddings"] == 128
    assert config["hidden_act"] == "gelu_new"
    assert "intermediate_size" not in config


def test_the_standard_name_goes_before_a_synonym() -> None:
    assert normalised(dtype="bfloat16", torch_dtype="float32")["dtype"] == "bfloat16"
    assert normalised(torch_dtype="float32")["dtype"] == "float32"


def test_names_of_code_are_dropped() -> None:
    assert "auto_map" not in normalised(auto_map={"AutoModelForCausalLM": "modeling_x.X"})


def test_model_type_is_needed() -> None:
    with pytest.raises(ModelFileError, match="model_type is 3, a string is needed"):
        normalised(model_type=3)
