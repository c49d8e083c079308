"""Tiny models of every family, seeded, as `transformers` makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

TINY: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}

CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=256, n_embd=64, n_layer=3, n_head=4, n_positions=512, bos_token_id=1, eos_token_id=2
    ),
    "gpt2-by-layer": lambda: transformers.GPT2Config(
        vocab_size=256,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=512,
        n_inner=80,
        scale_attn_by_inverse_layer_idx=True,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "llama-gqa": lambda: transformers.LlamaConfig(**TINY, rms_norm_eps=1e-5),
    "llama-tied": lambda: transformers.LlamaConfig(**TINY, tie_word_embeddings=True, head_dim=32),
    "llama-biases": lambda: transformers.LlamaConfig(**TINY, attention_bias=True, mlp_bias=True),
    "llama3-rope": lambda: transformers.LlamaConfig(**TINY, rope_parameters=dict(LLAMA3)),
    "llama-linear-rope": lambda: transformers.LlamaConfig(**TINY, rope_parameters=dict(LINEAR)),
    "mistral-window": lambda: transformers.MistralConfig(**TINY, sliding_window=24),
    "qwen2": lambda: transformers.Qwen2Config(**TINY),
    "qwen2-window": lambda: transformers.Qwen2Config(
        **TINY, use_sliding_window=True, sliding_window=20, max_window_layers=1, tie_word_embeddings=True
    ),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **{**TINY, "num_hidden_layers": 4},
        head_dim=32,
        query_pre_attn_scalar=24,
        sliding_window=20,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5_000.0},
        },
    ),
    "qwen3": lambda: transformers.Qwen3Config(**TINY, head_dim=32),
}


def tiny_model(name: str) -> Any:
    """The model in float32. Every weight is drawn anew, biases and gains too, with a spread that makes attention matter."""
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed" in key:
                spread, centre = 0.1, 0.0
            elif parameter.dim() > 1:
                spread, centre = 0.3, 0.0
            else:
                # Gains are near 1; Gemma stores them minus one.
                spread, centre = 0.2, 1.0 if key.endswith("weight") and not name.startswith("gemma") else 0.0
            parameter.copy_(centre + spread * torch.randn(parameter.shape))
    return model
