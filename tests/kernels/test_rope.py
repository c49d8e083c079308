"""RoPE's frequencies are those of `transformers`, for every scaling."""

from __future__ import annotations

import numpy as np
import pytest
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from pagoda.ops.rope import inverse_frequencies
from pagoda.planning.model_spec import Llama3RopeScaling, RopeSpec

LLAMA3 = Llama3RopeScaling(8.0, 1.0, 4.0, 8192)
CASES = {
    "default": (RopeSpec(64, 10_000.0), {"rope_type": "default"}),
    "linear": (RopeSpec(64, 10_000.0, linear_factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    "llama3": (
        RopeSpec(64, 500_000.0, llama3=LLAMA3),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_frequencies(name: str) -> None:
    spec, parameters = CASES[name]
    config = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        rope_parameters={**parameters, "rope_theta": spec.base},
    )

    got = inverse_frequencies(spec)

    assert got.dtype == np.float32
    np.testing.assert_allclose(got, LlamaRotaryEmbedding(config).inv_freq.numpy(), rtol=3e-7)


def test_llama3_keeps_stretches_and_blends() -> None:
    plain = inverse_frequencies(RopeSpec(64, 500_000.0))
    ratio = plain / inverse_frequencies(RopeSpec(64, 500_000.0, llama3=LLAMA3))

    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8)
    assert ((ratio > 1.01) & (ratio < 7.99)).any()


def test_divisors_divide() -> None:
    plain = inverse_frequencies(RopeSpec(8, 10_000.0))
    divided = inverse_frequencies(RopeSpec(8, 10_000.0, divisors=(1.0, 1.0, 4.0, 8.0)))

    np.testing.assert_array_equal(divided, plain / np.float32([1, 1, 4, 8]))
