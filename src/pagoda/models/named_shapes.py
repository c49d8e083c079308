"""Named shapes: published dimensions of well-known models, as configurations in Hugging Face's names.

They are planned by the same code as a model's own config.json. A table gives its source. Where a paper and the released
config.json differ (a padded vocabulary), the latter holds, since that is how weights are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NamedShape:
    """config: as `Checkpoint.config`, with the `dtype` of the released weights. source: where its dimensions were published.
    repository: where the hub has it."""

    name: str
    config: Mapping[str, Any]
    source: str
    repository: str


_COLUMNS = {
    "hidden": "hidden_size",
    "inner": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv": "num_key_value_heads",
    "vocab": "vocab_size",
    "context": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}


def _table(
    source: str, repository: str, common: Mapping[str, Any], columns: str, rows: Mapping[str, tuple[Any, ...]]
) -> list[NamedShape]:
    """One shape a row: what is common, and its own numbers under the configuration's names of the columns.

    repository: with {name}, or {size} (what follows the name's first hyphen, in capitals), of each.
    """
    names = [_COLUMNS[column] for column in columns.split()]
    return [
        NamedShape(
            name,
            {**common, **dict(zip(names, row, strict=True))},
            source,
            repository.format(name=name, size=name.partition("-")[2].upper()),
        )
        for name, row in rows.items()
    ]


_LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

_ALL = [
    *_table(
        "Radford et al., Language Models are Unsupervised Multitask Learners (2019), table 2",
        "openai-community/{name}",
        {"model_type": "gpt2", "vocab_size": 50_257, "max_position_embeddings": 1024, "dtype": "float32"},
        "hidden layers heads",
        {
            "gpt2": (768, 12, 12),
            "gpt2-medium": (1024, 24, 16),
            "gpt2-large": (1280, 36, 20),
            "gpt2-xl": (1600, 48, 25),
        },
    ),
    *_table(
        "LLaMA, arXiv:2302.13971, table 2",
        "huggyllama/{name}",
        {"model_type": "llama", "vocab_size": 32_000, "max_position_embeddings": 2048, "dtype": "float16"},
        "hidden inner layers heads",
        {"llama-7b": (4096, 11_008, 32, 32), "llama-13b": (5120, 13_824, 40, 40)},
    ),
    *_table(
        "Llama 2, arXiv:2307.09288, table 1",
        "meta-llama/Llama-2-70b-hf",
        {"model_type": "llama", "vocab_size": 32_000, "rms_norm_eps": 1e-5, "dtype": "float16"},
        "hidden inner layers heads kv context",
        {"llama-2-70b": (8192, 28_672, 80, 64, 8, 4096)},
    ),
    *_table(
        "Llama 3, arXiv:2407.21783, table 3",
        "meta-llama/Meta-Llama-{size}",
        {
            "model_type": "llama",
            "vocab_size": 128_256,
            "max_position_embeddings": 8192,
            "rope_theta": 500_000.0,
            "rms_norm_eps": 1e-5,
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv",
        {"llama-3-8b": (4096, 14_336, 32, 32, 8), "llama-3-70b": (8192, 28_672, 80, 64, 8)},
    ),
    *_table(
        "Llama 3.1, arXiv:2407.21783, table 3",
        "meta-llama/Llama-{size}",
        {
            "model_type": "llama",
            "vocab_size": 128_256,
            "max_position_embeddings": 131_072,
            "rope_theta": 500_000.0,
            "rope_scaling": _LLAMA3_SCALING,
            "rms_norm_eps": 1e-5,
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv",
        {"llama-3.1-8b": (4096, 14_336, 32, 32, 8)},
    ),
    *_table(
        "Qwen2.5, arXiv:2412.15115, table 1",
        "Qwen/Qwen2.5-{size}",
        {"model_type": "qwen2", "rope_theta": 1_000_000.0, "dtype": "bfloat16"},
        "hidden inner layers heads kv vocab context tied",
        {
            "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 151_936, 32_768, True),
            "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 151_936, 32_768, True),
            "qwen2.5-7b": (3584, 18_944, 28, 28, 4, 152_064, 131_072, False),
            "qwen2.5-14b": (5120, 13_824, 48, 40, 8, 152_064, 131_072, False),
            "qwen2.5-32b": (5120, 27_648, 64, 40, 8, 152_064, 131_072, False),
            "qwen2.5-72b": (8192, 29_568, 80, 64, 8, 152_064, 131_072, False),
        },
    ),
    *_table(
        "Qwen3, arXiv:2505.09388, table 1",
        "Qwen/Qwen3-{size}",
        {
            "model_type": "qwen3",
            "head_dim": 128,
            "vocab_size": 151_936,
            "max_position_embeddings": 40_960,
            "rope_theta": 1_000_000.0,
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv tied",
        {
            "qwen3-0.6b": (1024, 3072, 28, 16, 8, True),
            "qwen3-1.7b": (2048, 6144, 28, 16, 8, True),
            "qwen3-4b": (2560, 9728, 36, 32, 8, True),
            "qwen3-8b": (4096, 12_288, 36, 32, 8, False),
            "qwen3-14b": (5120, 17_408, 40, 40, 8, False),
            "qwen3-32b": (5120, 25_600, 64, 64, 8, False),
        },
    ),
    *_table(
        "Qwen3, arXiv:2505.09388, table 2",
        "Qwen/Qwen3-{size}",
        {
            "model_type": "qwen3_moe",
            "head_dim": 128,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "vocab_size": 151_936,
            "max_position_embeddings": 40_960,
            "rope_theta": 1_000_000.0,
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv",
        {"qwen3-30b-a3b": (2048, 6144, 48, 32, 4)},
    ),
    *_table(
        "Mistral 7B, arXiv:2310.06825, table 1",
        "mistralai/Mistral-7B-v0.1",
        {
            "model_type": "mistral",
            "vocab_size": 32_000,
            "max_position_embeddings": 32_768,
            "sliding_window": 4096,
            "rms_norm_eps": 1e-5,
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv",
        {"mistral-7b": (4096, 14_336, 32, 32, 8)},
    ),
    *_table(
        "Mixtral of Experts, arXiv:2401.04088, table 1",
        "mistralai/Mixtral-8x7B-v0.1",
        {
            "model_type": "mixtral",
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32_000,
            "max_position_embeddings": 32_768,
            "rope_theta": 1_000_000.0,
            "rms_norm_eps": 1e-5,
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv",
        {"mixtral-8x7b": (4096, 14_336, 32, 32, 8)},
    ),
    *_table(
        "Gemma 3, arXiv:2503.19786, and its config.json; the text model",
        "google/gemma-3-27b-it",
        {
            "model_type": "gemma3_text",
            "head_dim": 128,
            "query_pre_attn_scalar": 168,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "dtype": "bfloat16",
        },
        "hidden inner layers heads kv",
        {"gemma-3-27b": (5376, 21_504, 62, 32, 16)},
    ),
    *_table(
        "DeepSeek-V3, arXiv:2412.19437, section 4.2; without its multi-token-prediction module",
        "deepseek-ai/DeepSeek-V3",
        {
            "model_type": "deepseek_v3",
            "first_k_dense_replace": 3,
            "moe_intermediate_size": 2048,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 129_280,
            "max_position_embeddings": 163_840,
            "dtype": "bfloat16",
            "quantization_config": {"quant_method": "fp8"},
        },
        "hidden inner layers heads kv",
        {"deepseek-v3": (7168, 18_432, 61, 128, 128)},
    ),
]
NAMED_SHAPES: Mapping[str, NamedShape] = {shape.name: shape for shape in _ALL}
