"""Models of random weights with a tokenizer, as Hugging Face directories."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from gpu.context import Context
from gpu.sizes import ModelShape

SHARD_BYTES = 5_000_000_000
PIECE_BYTES = 16 << 20
THREADS = 8


def run(context: Context) -> None:
    for name, shape in context.sizes.models.items():
        begun = time.perf_counter()
        size = write_model(context.folder / name, shape)
        context.report(**{name: {"bytes": size, "seconds": time.perf_counter() - begun}})


def write_model(directory: Path, shape: ModelShape) -> int:
    """Weights in bf16, of either sign with magnitudes 2⁻⁷ … 2⁻⁵: numbers stay in range through the layers, and every bit of a
    fraction is as likely as not, as in weights that mean something. Gains are 1. Returns the bytes of all weights."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "config.json", _config(shape))
    _write_json(directory / "tokenizer_config.json", {})
    _tokenizer(shape.vocab_size).save(str(directory / "tokenizer.json"))
    shards = list(_shards(list(tensors(shape))))
    files = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    for name, shard in zip(files, shards, strict=True):
        _write_shard(directory / name, shard)
    total = sum(2 * math.prod(size) for shard in shards for size in shard.values())
    weight_map = {tensor: name for name, shard in zip(files, shards, strict=True) for tensor in shard}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(directory / "model.safetensors.index.json", index)
    return total


def tensors(shape: ModelShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor, in the order of the layers."""
    hidden, feed_forward = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    yield "model.embed_tokens.weight", (shape.vocab_size, hidden)
    for layer in range(shape.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        for name, size in (("q", (q, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, q))):
            yield f"{prefix}self_attn.{name}_proj.weight", size
        if shape.family == "qwen3":
            for name in ("q", "k"):
                yield f"{prefix}self_attn.{name}_norm.weight", (shape.head_dim,)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (feed_forward, hidden)
        yield f"{prefix}mlp.down_proj.weight", (hidden, feed_forward)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not shape.tie_word_embeddings:
        yield "lm_head.weight", (shape.vocab_size, hidden)


def _config(shape: ModelShape) -> dict[str, Any]:
    sizes = {name: getattr(shape, name) for name in shape.__dataclass_fields__ if name != "family"}
    return {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[shape.family]],
        "model_type": shape.family,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        **sizes,
    }


def _tokenizer(vocab_size: int) -> Tokenizer:
    """Bytes, and as many words that no text becomes as fill the vocabulary, so that sampling looks at all of it."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces += [f"word{number}" for number in range(vocab_size - len(pieces))]
    tokenizer = Tokenizer(models.BPE(vocab={piece: token_id for token_id, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _shards(every: list[tuple[str, tuple[int, ...]]]) -> Iterator[dict[str, tuple[int, ...]]]:
    shard: dict[str, tuple[int, ...]] = {}
    for name, size in every:
        if shard and 2 * sum(math.prod(each) for each in (*shard.values(), size)) > SHARD_BYTES:
            yield shard
            shard = {}
        shard[name] = size
    yield shard


def _write_shard(path: Path, shard: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in shard.items():
        start, end = end, end + 2 * math.prod(size)
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    first = 8 + len(text)
    pieces = [
        (first + begin + offset, min(PIECE_BYTES, stop - begin - offset), len(shard[name]) == 1)
        for name, (begin, stop) in ((name, header[name]["data_offsets"]) for name in shard)
        for offset in range(0, stop - begin, PIECE_BYTES)
    ]
    file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    try:
        os.pwrite(file, struct.pack("<Q", len(text)) + text, 0)
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda piece: _write_piece(file, *piece), pieces))
    finally:
        os.close(file)


def _write_piece(file: int, at: int, num_bytes: int, is_gain: bool) -> None:
    if is_gain:
        bits = np.full(num_bytes // 2, 0x3F80, np.uint16)  # 1
    else:
        words = np.random.default_rng(at).integers(0, 1 << 64, -(-num_bytes // 8), np.uint64)
        bits = words.view(np.uint16)[: num_bytes // 2]
        bits &= 0x80FF
        bits |= 0x3C00
    left = memoryview(bits.view(np.uint8))
    while left:
        written = os.pwrite(file, left, at)
        left, at = left[written:], at + written


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
