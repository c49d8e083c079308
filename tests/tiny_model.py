"""A tiny LLaMA with seeded random weights and a byte-level tokenizer, as a Hugging Face directory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 32, 2, 4, 2, 8, 48
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT, IM_START, IM_END = range(256, 259)
VOCAB_SIZE = 256 + len(SPECIALS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(directory: Path, context_length: int = 256, seed: int = 0) -> Path:
    """Writes the model and returns its directory. Token ids 0 … 255 are bytes, in the order of `byte_level_alphabet`."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "config.json", _config(context_length))
    _write_json(directory / "generation_config.json", {"eos_token_id": [END_OF_TEXT, IM_END]})
    _write_json(directory / "tokenizer_config.json", {"chat_template": CHAT_TEMPLATE, "eos_token": SPECIALS[0]})
    _tokenizer().save(str(directory / "tokenizer.json"))
    save_file(_weights(np.random.default_rng(seed)), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def byte_level_alphabet() -> list[str]:
    """The characters that stand for the 256 bytes, sorted as they are numbered here."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _config(context_length: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": context_length,
        "vocab_size": VOCAB_SIZE,
        "tie_word_embeddings": True,
        "eos_token_id": END_OF_TEXT,
        "torch_dtype": "float32",
    }


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(byte_level_alphabet())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer


def _weights(random: np.random.Generator) -> dict[str, np.ndarray]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB_SIZE, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "self_attn.q_proj.weight"] = (HEADS * HEAD_DIM, HIDDEN)
        shapes[prefix + "self_attn.k_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
        shapes[prefix + "self_attn.v_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
        shapes[prefix + "self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
        shapes[prefix + "mlp.gate_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[prefix + "mlp.up_proj.weight"] = (INTERMEDIATE, HIDDEN)
        shapes[prefix + "mlp.down_proj.weight"] = (HIDDEN, INTERMEDIATE)
    weights = {name: random.normal(0.0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{norm}.weight"] = np.ones(HIDDEN, np.float32)
    weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    return weights


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
