"""From a config to a ModelSpec: what is understood, what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.models.registry import FAMILIES, family_for
from pagoda.planning.model_spec import Llama3RopeScaling, ModelSpec
from tests.models.fakes import CONFIGS, GPT2, LLAMA


def spec_of(config: dict[str, Any]) -> ModelSpec:
    return family_for(config).spec(config)


def windows(spec: ModelSpec) -> list[int | None]:
    return [layer.attention.window for layer in spec.layers]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_every_weight_has_one_name_and_one_source(name: str) -> None:
    spec = spec_of(CONFIGS[name])
    names = [weight.name for weight in spec.weights]
    sources = family_for(CONFIGS[name]).sources(spec)

    assert len(set(names)) == len(names)
    assert set(sources) == set(names)
    assert len({source.gguf for source in sources.values()}) == len(names)
    assert len({source.huggingface[0] for source in sources.values()}) == len(names)


def test_parameters_of_smollm2() -> None:
    config = {
        **LLAMA,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    }

    assert spec_of(config).num_parameters == 134_515_008


def test_unknown_architectures_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"architecture 'mamba' is not supported; known: llama, mistral, qwen2"
    ):
        family_for({"model_type": "mamba"})
    with pytest.raises(UnsupportedModelError, match="architecture None"):
        family_for({})


def test_quantization_methods_of_other_libraries_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="quantization method 'gptq' is not supported; known: none, fp8"):
        family_for({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}})


def test_no_two_families_claim_an_architecture() -> None:
    claimed = [model_type for family in FAMILIES for model_type in family.model_types]

    assert len(set(claimed)) == len(claimed)


def test_windows() -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "num_hidden_layers": 4, "sliding_window": 8, "max_window_layers": 3}
    gemma = {**CONFIGS["gemma3"], "num_hidden_layers": 7}

    assert windows(spec_of(CONFIGS["mistral"])) == [16, 16]
    assert windows(spec_of({**CONFIGS["mistral"], "sliding_window": None})) == [None, None]
    assert windows(spec_of(qwen)) == [None] * 4
    assert windows(spec_of({**qwen, "use_sliding_window": True})) == [None, None, None, 8]
    assert windows(spec_of(gemma)) == [16, 16, 16, 16, 16, None, 16]
    assert windows(spec_of({**gemma, "sliding_window_pattern": 2})) == [16, None, 16, None, 16, None, 16]


def test_gemma3_layers_have_the_rope_of_their_reach() -> None:
    config = {
        **CONFIGS["gemma3"],
        "rope_theta": 1e6,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "layer_types": ["sliding_attention", "full_attention"],
    }
    near, far = (layer.attention.rope for layer in spec_of(config).layers)

    assert near is not None
    assert far is not None
    assert (near.base, near.linear_factor) == (5_000.0, 1.0)
    assert (far.base, far.linear_factor) == (1e6, 8.0)


def test_rope_scalings() -> None:
    llama3 = {
        "rope_type": "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 8192,
    }
    rope = spec_of({**LLAMA, "rope_scaling": llama3}).layers[0].attention.rope
    assert rope is not None
    assert rope.llama3 == Llama3RopeScaling(8.0, 1.0, 4.0, 8192)
    rope = spec_of({**LLAMA, "rope_divisors": [1.0, 2.0, 3.0, 4.0]}).layers[0].attention.rope
    assert rope is not None
    assert rope.divisors == (1.0, 2.0, 3.0, 4.0)
    with pytest.raises(
        UnsupportedModelError, match="RoPE scaling 'yarn' is not supported; known: default, linear, llama3"
    ):
        spec_of({**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
    with pytest.raises(ModelFileError, match=r"rope_scaling\.factor is missing"):
        spec_of({**LLAMA, "rope_scaling": {"rope_type": "linear"}})
    with pytest.raises(ModelFileError, match="3 RoPE divisors"):
        spec_of({**LLAMA, "rope_divisors": [1.0, 2.0, 3.0]})


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="activation 'relu' is not supported; known: silu"):
        spec_of({**LLAMA, "hidden_act": "relu"})


REFUSED = [
    ({"num_attention_heads": None}, "num_attention_heads is missing"),
    ({"vocab_size": "64"}, "vocab_size: got '64', must be an integer"),
    ({"hidden_size": 0}, "hidden_size: got 0, must be an integer from 1"),
    ({"hidden_size": True}, "hidden_size: got True"),
    ({"vocab_size": 1 << 22}, "vocab_size: got 4194304, must be an integer from 1 to 4,194,303"),
    ({"hidden_size": 10**12}, "hidden_size: got 1000000000000, must be an integer from 1 to 16,777,216"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers: got 1000000000, must be an integer from 1 to 1,024"),
    ({"intermediate_size": 10**30}, "intermediate_size: got 1"),
    ({"max_position_embeddings": -1}, "max_position_embeddings: got -1"),
    ({"num_key_value_heads": 3}, "num_attention_heads, 4, is not a multiple of num_key_value_heads, 3"),
    ({"hidden_size": 34}, "hidden_size, 34, is not a multiple of num_attention_heads, 4"),
    ({"head_dim": 1 << 23, "num_attention_heads": 8}, "num_attention_heads × head_dim is 67,108,864"),
    ({"head_dim": 7}, "RoPE over 7 of 7 elements of a head"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps: got nan"),
    ({"rms_norm_eps": -1e-5}, "rms_norm_eps: got -1e-05, must be above 0"),
    ({"rope_theta": 0}, "rope_theta: got 0"),
    ({"rope_theta": 1e308}, "rope_theta: got 1e+308, must be a finite number from 1.0 to 1,000,000,000,000.0"),
    ({"rope_theta": 1e-300}, "rope_theta: got 1e-300"),
    ({"partial_rotary_factor": 1e308}, "partial_rotary_factor: got 1e+308"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 1e-300}}, "rope_scaling.factor: got 1e-300"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: got 'yes', must be true or false"),
    ({"rope_scaling": 8}, "rope_scaling is 8, must be an object or null"),
    ({"num_local_experts": 8}, "num_local_experts is 8, but a mixture of experts is not supported"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[f"{change}" for change, _ in REFUSED])
def test_bad_configs_are_refused_in_one_sentence(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        spec_of({**LLAMA, **change})

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**GPT2, "add_cross_attention": True}, "cross attention"),
        ({**GPT2, "head_dim": 16}, "hidden_size, 32, is not num_attention_heads × head_dim, 4 × 16"),
        ({**CONFIGS["gemma3"], "final_logit_softcapping": 30.0}, "capped logits"),
        ({**CONFIGS["gemma3"], "layer_types": ["full_attention"]}, "must be a list of 2 names"),
        ({**CONFIGS["gemma3"], "sliding_window": None}, "sliding_window is missing"),
        ({**CONFIGS["gemma3"], "rope_local_base_freq": 1e308}, "rope_local_base_freq: got 1e"),
    ],
)
def test_what_a_family_does_not_have_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        spec_of(config)
