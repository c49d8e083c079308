"""Tiny vocabularies of both kinds, as a GGUF file and as a directory holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pagoda.text.token_pieces import byte_letters

CONTROL, NORMAL, USER_DEFINED, UNUSED, BYTE, UNKNOWN = 3, 1, 4, 5, 6, 2


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """All bytes, a few merges, two control tokens."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w"]
    tokens = [*sorted(byte_letters()), *(merge.replace(" ", "") for merge in merges), "<|end|>", "<|user|>"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * (len(tokens) - 2) + [CONTROL] * 2,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
    }
    return changed(metadata, changes)


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    """Bytes, letters, and pieces whose scores decide what is joined first."""
    words = ["▁", "▁a", "ab", "bc", "b", "a", "c", "▁h", "hi", "h", "i", "▁hi"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(words))]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return changed(metadata, changes)


def changed(metadata: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The metadata with `tokenizer.ggml.<name>` (or `chat_template`) set, or removed where the value is None."""
    for name, value in changes.items():
        key = f"tokenizer.{name}" if name == "chat_template" else f"tokenizer.ggml.{name}"
        metadata[key] = value
    return {key: value for key, value in metadata.items() if value is not None}


def write_llama_directory(path: Path, **config: Any) -> Path:
    """A directory with a LLaMA-like tokenizer.json (SentencePiece pieces, BOS from the post-processor)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    metadata = sentencepiece_metadata()
    ids = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [("▁", "a"), ("a", "b"), ("b", "c"), ("▁", "h"), ("h", "i"), ("▁", "hi"), ("▁h", "i")]
    backend = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    backend.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    backend.save(str(path / "tokenizer.json"))
    entries = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **config}
    (path / "tokenizer_config.json").write_text(json.dumps(entries), encoding="utf-8")
    return path
