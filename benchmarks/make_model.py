"""Makes the random-weight model "L1.7B" that speeds are compared on, in one weight format.

    python benchmarks/make_model.py FOLDER [--format q4_0 | q8_0 | bf16 | safetensors] [--layers 24]

LLaMA architecture: 24 layers, hidden 2048, 32 heads, feed-forward 8192, vocabulary 49152, tied; 1.71 billion parameters.
The tokenizer and all other metadata are the embedded model's (SmolLM2), so that every engine loads it. Weights are
symmetric about 0 with a standard deviation near 0.02: numbers stay in range through the layers, the text means nothing.
A format's file is FOLDER/l1.7b-FORMAT.gguf; `safetensors` makes FOLDER/l1.7b-bf16, a directory as Hugging Face has them.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import gguf
import numpy as np

from pagoda.loading.default_model import default_model_path
from pagoda.progress import TerminalProgress
from pagoda.text.build_backend import add_tokens, byte_level_backend
from pagoda.text.pre_tokenizers import word_splitting

HIDDEN, HEADS, FEED_FORWARD, VOCABULARY, CONTEXT = 2048, 32, 8192, 49152, 8192
NORM_EPS, ROPE_BASE = 1e-5, 100_000.0
SEED = 0
Shape = tuple[int, int]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# GGUF's names of a layer's matrices, Hugging Face's, and the shape [out, in].
MATRICES: dict[str, tuple[str, Shape]] = {
    "attn_q": ("self_attn.q_proj", (HIDDEN, HIDDEN)),
    "attn_k": ("self_attn.k_proj", (HIDDEN, HIDDEN)),
    "attn_v": ("self_attn.v_proj", (HIDDEN, HIDDEN)),
    "attn_output": ("self_attn.o_proj", (HIDDEN, HIDDEN)),
    "ffn_gate": ("mlp.gate_proj", (FEED_FORWARD, HIDDEN)),
    "ffn_up": ("mlp.up_proj", (FEED_FORWARD, HIDDEN)),
    "ffn_down": ("mlp.down_proj", (HIDDEN, FEED_FORWARD)),
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def tensors(layers: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(name in a GGUF file, name in safetensors, shape) of every tensor; a norm's gain has one dimension."""
    yield "token_embd", "model.embed_tokens", (VOCABULARY, HIDDEN)
    for layer in range(layers):
        for name, other in NORMS.items():
            yield f"blk.{layer}.{name}", f"model.layers.{layer}.{other}", (HIDDEN,)
        for name, (other, shape) in MATRICES.items():
            yield f"blk.{layer}.{name}", f"model.layers.{layer}.{other}", shape
    yield "output_norm", "model.norm", (HIDDEN,)


def q4_0(numbers: np.random.Generator, shape: Shape) -> Bytes:
    """Blocks of one fp16 scale and 32 nibbles, value = scale × (nibble − 8); a nibble is 1 … 15, or 8 instead of 0."""
    rows, columns = shape[0], shape[1] // 32
    stored = _random_bytes(numbers, rows * columns * 18).reshape(rows, columns, 18)
    nibbles = np.arange(256, dtype=np.uint8)
    nibbles[nibbles & 15 == 0] |= 8
    nibbles[nibbles >> 4 == 0] |= 128
    stored[:, :, 2:] = nibbles[stored[:, :, 2:]]
    _put_scales(stored, numbers, 0.02 / 4.2)
    flat: Bytes = stored.reshape(rows, -1)
    return flat


def q8_0(numbers: np.random.Generator, shape: Shape) -> Bytes:
    """Blocks of one fp16 scale and 32 signed bytes, value = scale × byte; a byte is −127 … 127."""
    rows, columns = shape[0], shape[1] // 32
    stored = _random_bytes(numbers, rows * columns * 34).reshape(rows, columns, 34)
    codes = np.arange(256, dtype=np.uint8)
    codes[128] = 0
    stored[:, :, 2:] = codes[stored[:, :, 2:]]
    _put_scales(stored, numbers, 0.02 / 73)
    flat: Bytes = stored.reshape(rows, -1)
    return flat


def bf16(numbers: np.random.Generator, shape: Shape) -> Bytes:
    """Either sign, a magnitude of 1 … 2 times 2⁻⁷ or 2⁻⁶, random fractions."""
    bits = _random_bytes(numbers, 2 * shape[0] * shape[1]).view(np.uint16)
    bits &= 0x80FF
    bits |= 0x3C00
    stored: Bytes = bits.view(np.uint8).reshape(shape[0], -1)
    return stored


def _random_bytes(numbers: np.random.Generator, count: int) -> Bytes:
    words = numbers.integers(0, 1 << 64, size=-(-count // 8), dtype=np.uint64)
    drawn: Bytes = words.view(np.uint8)[:count]
    return drawn


def _put_scales(stored: Bytes, numbers: np.random.Generator, mean: float) -> None:
    scales = numbers.uniform(0.8 * mean, 1.2 * mean, stored.shape[:2]).astype(np.float16)
    stored[:, :, :2] = scales.view(np.uint8).reshape(*stored.shape[:2], 2)


Make = Callable[[np.random.Generator, Shape], Bytes]
FORMATS: dict[str, tuple[Make, gguf.GGMLQuantizationType, gguf.LlamaFileType]] = {
    "q4_0": (q4_0, gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
    "q8_0": (q8_0, gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "bf16": (bf16, gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}


def write_gguf(path: Path, format_name: str, layers: int) -> None:
    make, kind, file_type = FORMATS[format_name]
    writer = gguf.GGUFWriter(path, "llama")
    _add_metadata(writer, layers, file_type)
    plan = list(tensors(layers))
    for name, _, shape in plan:
        if len(shape) == 1:
            writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.float32), 4 * shape[0])
        else:
            stored = gguf.quant_shape_to_byte_shape(shape, kind)
            writer.add_tensor_info(f"{name}.weight", stored, np.dtype(np.uint8), stored[0] * stored[1], kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    numbers = np.random.default_rng(SEED)
    with TerminalProgress() as bars:
        for index, (_, _, shape) in enumerate(plan):
            bars(f"Writing {path.name}", index, len(plan))
            ones = np.ones(shape, np.float32)
            writer.write_tensor_data(ones if len(shape) == 1 else make(numbers, (shape[0], shape[1])))
    writer.close()


def _add_metadata(writer: gguf.GGUFWriter, layers: int, file_type: gguf.LlamaFileType) -> None:
    own = {
        "general.name": "L1.7B, random weights",
        "llama.block_count": layers,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.attention.layer_norm_rms_epsilon": NORM_EPS,
        "llama.rope.freq_base": ROPE_BASE,
        "llama.rope.dimension_count": HIDDEN // HEADS,
        "llama.vocab_size": VOCABULARY,
        "general.file_type": int(file_type),
    }
    not_copied = ("GGUF.", "general.architecture", "general.size_label", "general.basename", "general.finetune")
    for name, field in gguf.GGUFReader(default_model_path()).fields.items():
        if not name.startswith(not_copied):
            value, sub_type = own.get(name, field.contents()), field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, value, field.types[0], sub_type=sub_type)


def write_safetensors(folder: Path, layers: int) -> None:
    """config.json, tokenizer.json and model.safetensors, in bf16."""
    folder.mkdir(exist_ok=True)
    metadata = {name: field.contents() for name, field in gguf.GGUFReader(default_model_path()).fields.items()}
    _write_tokenizer(folder / "tokenizer.json", metadata)
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "intermediate_size": FEED_FORWARD,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_BASE,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    with open(folder / "model.safetensors", "wb") as file:
        _write_tensors(file, layers)


def _write_tokenizer(path: Path, metadata: dict[str, Any]) -> None:
    pieces, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    ids = {piece: token_id for token_id, piece in enumerate(pieces)}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in metadata["tokenizer.ggml.merges"])]
    backend = byte_level_backend(ids, merges, word_splitting(metadata["tokenizer.ggml.pre"]), str(path))
    control = [piece for piece, kind in zip(pieces, types, strict=True) if kind == gguf.TokenType.CONTROL]
    add_tokens(backend, control, [])
    backend.save(str(path))


def _write_tensors(file: BinaryIO, layers: int) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    plan, end = list(tensors(layers)), 0
    for _, name, shape in plan:
        start, end = end, end + 2 * int(np.prod(shape))
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    numbers = np.random.default_rng(SEED)
    with TerminalProgress() as bars:
        for index, (_, _, shape) in enumerate(plan):
            bars("Writing model.safetensors", index, len(plan))
            ones = np.full(shape, 0x3F80, np.uint16)
            (ones if len(shape) == 1 else bf16(numbers, (shape[0], shape[1]))).tofile(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", choices=(*FORMATS, "safetensors"), default="q4_0")
    parser.add_argument("--layers", type=int, default=24)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.format == "safetensors":
        write_safetensors(options.folder / "l1.7b-bf16", options.layers)
    else:
        write_gguf(options.folder / f"l1.7b-{options.format}.gguf", options.format, options.layers)


if __name__ == "__main__":
    main()
