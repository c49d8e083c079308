"""Model files made by hand, byte by byte, so that a test can make them lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

U8, U16, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 2, 4, 5, 6, 7, 8, 9, 10
TINY_CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4,
    "vocab_size": 8,
    "eos_token_id": 2,
}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, value_type: int, raw: bytes) -> bytes:
    return string(key) + struct.pack("<I", value_type) + raw


def u32_pair(key: str, value: int) -> bytes:
    return pair(key, U32, struct.pack("<I", value))


def string_pair(key: str, value: str) -> bytes:
    return pair(key, STRING, string(value))


def array_pair(key: str, element_type: int, count: int, raw: bytes) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", element_type, count) + raw)


def tensor(name: str, dimensions: Sequence[int], type_number: int = 0, offset: int = 0) -> bytes:
    """dimensions: innermost first, as the file has them."""
    sizes = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return string(name) + sizes + struct.pack("<IQ", type_number, offset)


def gguf_bytes(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    num_pairs: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(pairs) if num_pairs is None else num_pairs,
    )
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def tiny_gguf() -> bytes:
    """A valid file with values of many types and two tensors."""
    return gguf_bytes(
        [
            string_pair("general.architecture", "llama"),
            u32_pair("llama.embedding_length", 4),
            pair("llama.rope.freq_base", F32, struct.pack("<f", 10000.0)),
            pair("flag", BOOL, b"\1"),
            array_pair("tokenizer.ggml.tokens", STRING, 3, string("a") + string("é") + string("")),
            array_pair("tokenizer.ggml.token_type", I32, 3, struct.pack("<3i", 1, -1, 3)),
        ],
        [tensor("token_embd.weight", (4, 3)), tensor("norm", (32,), 8, 64)],
        np.arange(12, dtype="<f4").tobytes() + bytes(16) + bytes(34),
    )


def safetensors_bytes(header: Any, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(shape: Sequence[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def tiny_safetensors() -> bytes:
    header = {"__metadata__": {"format": "pt"}, "a": entry((2, 4), 0, 32), "b": entry((4,), 32, 40, "BF16")}
    return safetensors_bytes(header, np.arange(8, dtype="<f4").tobytes() + bytes(8))


def huggingface_directory(
    directory: Path, config: Mapping[str, Any] = TINY_CONFIG, weights: bytes | None = None
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").write_bytes(tiny_safetensors() if weights is None else weights)
    return directory
