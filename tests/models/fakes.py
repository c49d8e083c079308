"""Configs and a checkpoint made of nothing but names, for tests that need no weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.models.registry import family_for

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "rope_scaling": None,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama-tied": {**LLAMA, "tie_word_embeddings": True},
    "llama-biases": {**LLAMA, "attention_bias": True, "mlp_bias": True},
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 16},
    "qwen2": {**LLAMA, "model_type": "qwen2"},
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 16},
    "gpt2": GPT2,
    "gemma3": {**LLAMA, "model_type": "gemma3_text", "sliding_window": 16, "rope_local_base_freq": 5_000.0},
}


class FakeCheckpoint:
    """Holds the tensors that a config needs, all of value 1, in float32."""

    metadata: Mapping[str, Any] = {}
    generation_config: Mapping[str, Any] = {}
    directory = None
    name = "fake"

    def __init__(self, config: Mapping[str, Any], kind: Literal["huggingface", "gguf"] = "huggingface") -> None:
        self.kind: Literal["huggingface", "gguf"] = kind
        self.config = config
        self.reads: list[str] = []
        self.released: list[str] = []
        family = family_for(config)
        spec = family.spec(config)
        sources = family.sources(spec)
        self.tensors: dict[str, TensorInfo] = {}
        for weight in spec.weights:
            names, transform = sources[weight.name].of(kind)
            self.add(names[0], transform.stored_shape(weight.shape))

    def add(self, name: str, shape: tuple[int, ...], format_name: str = "F32") -> None:
        self.tensors[name] = TensorInfo(name, shape, format_name, 4 * int(np.prod(shape)))

    def read(self, name: str) -> StoredTensor:
        self.reads.append(name)
        info = self.tensors[name]
        rows = 1 if len(info.shape) < 2 else info.shape[0]
        return StoredTensor(info, np.ones((rows, info.num_bytes // 4 // rows), dtype=np.float32).view(np.uint8))

    def release(self, name: str) -> None:
        self.released.append(name)

    def close(self) -> None:
        self.tensors = {}
