"""Writes tiny models as llama.cpp's converter does: its names, its order of rows, its added ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray


def write_llama(
    path: Path,
    model: Any,
    matrices: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    rope_freqs: Array | None = None,
) -> None:
    """A LLaMA or Mistral: Q and K reordered for interleaved RoPE, then stored in the format `matrices`."""
    config, head_counts = model.config, {"q": model.config.num_attention_heads, "k": model.config.num_key_value_heads}
    writer = _writer(path, "llama", config)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for name, values in _tensors(model, tied=config.tie_word_embeddings):
        stored = values
        if match := re.search(r"attn_([qk])\.(weight|bias)", name):
            stored = interleaved(values, head_counts[match[1]])
        _add(writer, name, stored, matrices if stored.ndim == 2 else gguf.GGMLQuantizationType.F32)
    if rope_freqs is not None:
        _add(writer, "rope_freqs.weight", rope_freqs, gguf.GGMLQuantizationType.F32)
    _finish(writer)


def write_gemma3(path: Path, model: Any) -> None:
    """Gains are stored with one added."""
    config = model.config
    writer = _writer(path, "gemma3", config)
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    for name, values in _tensors(model, tied=True):
        _add(writer, name, values + 1 if "norm" in name else values, gguf.GGMLQuantizationType.F32)
    _finish(writer)


def write_gpt2(path: Path, model: Any) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    for name, values in _tensors(model, tied=True):
        conv1d = re.search(r"(attn_qkv|attn_output|ffn_up|ffn_down)\.weight", name)
        _add(writer, name, values.T if conv1d else values, gguf.GGMLQuantizationType.F32)
    _finish(writer)


def interleaved(values: Array, num_heads: int) -> Array:
    """In each head, rows 0, n/2, 1, n/2 + 1, …: partners in rotation side by side."""
    rows = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return rows.swapaxes(1, 2).reshape(values.shape)


def _writer(path: Path, architecture: str, config: Any) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    return writer


def _tensors(model: Any, tied: bool) -> list[tuple[str, Array]]:
    """Every tensor with the name that the gguf package gives it."""
    architecture = {"llama": gguf.MODEL_ARCH.LLAMA, "gpt2": gguf.MODEL_ARCH.GPT2, "gemma3_text": gguf.MODEL_ARCH.GEMMA3}
    names = gguf.get_tensor_name_map(architecture[model.config.model_type], model.config.num_hidden_layers)
    tensors = []
    for key, parameter in model.state_dict().items():
        if key == "lm_head.weight" and tied:
            continue
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None, key
        tensors.append((name, parameter.numpy()))
    return tensors


def _add(writer: gguf.GGUFWriter, name: str, values: Array, kind: gguf.GGMLQuantizationType) -> None:
    values = np.ascontiguousarray(values, dtype=np.float32)
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
