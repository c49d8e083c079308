"""The tokenizer inside a GGUF file: its `tokenizer.*` metadata. Nothing in it is believed before it is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pagoda.errors import ModelFileError, UnsupportedModelError, shown
from pagoda.text.build_backend import add_tokens, byte_level_backend, sentencepiece_backend
from pagoda.text.pre_tokenizers import word_splitting
from pagoda.text.tokenizer import Tokenizer, Vocabulary

# Values of tokenizer.ggml.token_type (the GGUF specification takes them from SentencePiece).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_KINDS = ("llama", "gpt2")
_MAX_PIECE_CHARACTERS = 512

# A GGUF file names one end token; a chat model has more. These control tokens end a text or a turn in any model.
_END_TEXTS = frozenset(
    ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>")
)


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    Raises `ModelFileError` for metadata that contradict each other, `UnsupportedModelError` for another kind of
    vocabulary or an unknown way of cutting words.
    """
    kind = _get(metadata, "ggml.model", str)
    if kind is None:
        raise ModelFileError("tokenizer.ggml.model is missing: the GGUF file has no tokenizer")
    if kind not in _KINDS:
        raise UnsupportedModelError("tokenizer.ggml.model", kind, _KINDS)
    pieces = _strings(metadata, "ggml.tokens")
    if not pieces:
        raise ModelFileError("tokenizer.ggml.tokens is missing or empty: the GGUF file has no vocabulary")
    types = _types(metadata, pieces)
    vocab_size = _without_padding(pieces, types)
    ids: dict[str, int] = {}
    for token_id, piece in enumerate(pieces[:vocab_size]):
        ids.setdefault(piece, token_id)
    named = {name: _token_id(metadata, name, len(pieces)) for name in ("bos", "eos", "eot", "eom", "unknown")}
    for name in ("bos", "eos", "eot", "eom"):
        if (named_id := named[name]) is not None and types[named_id] != _BYTE:
            types[named_id] = _CONTROL
    if kind == "gpt2":
        splitting = word_splitting(_get(metadata, "ggml.pre", str) or "default")
        backend = byte_level_backend(ids, _merges(metadata), splitting, "tokenizer.ggml.merges")
        adds_bos, adds_space = splitting.adds_bos, False
    else:
        adds_bos, adds_space = True, _flag(metadata, "ggml.add_space_prefix", True)
        normal = {piece: token_id for piece, token_id in ids.items() if types[token_id] in (_NORMAL, _USER_DEFINED)}
        scores = _scores(metadata, pieces)
        unknown = named["unknown"]
        backend = sentencepiece_backend(
            ids,
            {piece: scores[token_id] for piece, token_id in normal.items()},
            pieces[unknown] if unknown is not None and unknown < vocab_size else None,
            adds_space,
        )
    of_type = {kind: [i for i in range(vocab_size) if types[i] == kind] for kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)}
    special = of_type[_CONTROL] + of_type[_UNKNOWN]
    add_tokens(
        backend, [pieces[i] for i in special if pieces[i]], [pieces[i] for i in of_type[_USER_DEFINED] if pieces[i]]
    )
    ends = {named[name] for name in ("eos", "eot", "eom")} | {i for i in of_type[_CONTROL] if pieces[i] in _END_TEXTS}
    bos, eos = named["bos"], named["eos"]
    return Tokenizer(
        Vocabulary(
            backend=backend,
            pieces=dict(enumerate(pieces[:vocab_size])),
            coding="byte-level" if kind == "gpt2" else "sentencepiece",
            literal_ids=frozenset(special + of_type[_USER_DEFINED]),
            special_ids=frozenset(special),
            vocab_size=vocab_size,
            bos_token_id=bos,
            eos_token_id=eos,
            end_token_ids=frozenset(end for end in ends if end is not None),
            prefix_ids=(bos,) if bos is not None and _flag(metadata, "ggml.add_bos_token", adds_bos) else (),
            suffix_ids=(eos,) if eos is not None and _flag(metadata, "ggml.add_eos_token", False) else (),
            strips_leading_space=adds_space,
            chat_template=_get(metadata, "chat_template", str),
        )
    )


def _get(metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    value = metadata.get(f"tokenizer.{name}")
    if value is not None and not isinstance(value, kind):
        raise ModelFileError(f"tokenizer.{name} is {shown(value)}, must be a {kind.__name__}")
    return value


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.{name}")
    return default if value is None else bool(value)


def _list(metadata: Mapping[str, Any], name: str) -> list[Any] | None:
    value = metadata.get(f"tokenizer.{name}")
    if value is None:
        return None
    if isinstance(value, (str, bytes, Mapping)) or not (isinstance(value, Sequence) or hasattr(value, "tolist")):
        raise ModelFileError(f"tokenizer.{name} is {shown(value)}, must be an array")
    return list(value.tolist() if hasattr(value, "tolist") else value)


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = _list(metadata, name) or []
    for index, value in enumerate(values):
        if not isinstance(value, str) or len(value) > _MAX_PIECE_CHARACTERS:
            limit = f"a string of at most {_MAX_PIECE_CHARACTERS:,} characters"
            raise ModelFileError(f"tokenizer.{name}[{index}] is {shown(value)}, must be {limit}")
    return values


def _numbers(metadata: Mapping[str, Any], name: str, pieces: Sequence[str]) -> list[Any] | None:
    values = _list(metadata, name)
    if values is None:
        return None
    if len(values) != len(pieces):
        raise ModelFileError(f"tokenizer.{name} has {len(values):,} entries for {len(pieces):,} tokens")
    for index, value in enumerate(values):
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ModelFileError(f"tokenizer.{name}[{index}] is {shown(value)}, must be a finite number")
    return values


def _types(metadata: Mapping[str, Any], pieces: Sequence[str]) -> list[int]:
    return _numbers(metadata, "ggml.token_type", pieces) or [_NORMAL] * len(pieces)


def _scores(metadata: Mapping[str, Any], pieces: Sequence[str]) -> list[float]:
    scores = _numbers(metadata, "ggml.scores", pieces)
    if scores is None:
        raise ModelFileError("tokenizer.ggml.scores is missing: a `llama` vocabulary cannot be used without its scores")
    return scores


def _without_padding(pieces: Sequence[str], types: Sequence[int]) -> int:
    """How many tokens there are before those that only fill the matrices (unused ones, named "[PAD<id>]")."""
    size = len(pieces)
    while size > 1 and (types[size - 1] == _UNUSED or pieces[size - 1] == f"[PAD{size - 1}]"):
        size -= 1
    return size


def _token_id(metadata: Mapping[str, Any], name: str, num_tokens: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    if value is None:
        return None
    # -1, as an unsigned number too, is how converters write "none".
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ModelFileError(f"tokenizer.ggml.{name}_token_id is {shown(value)}, must be a token id")
    token_id = int(value)
    if token_id in (-1, 2**32 - 1):
        return None
    if not 0 <= token_id < num_tokens:
        raise ModelFileError(f"tokenizer.ggml.{name}_token_id is {token_id:,}, but there are {num_tokens:,} tokens")
    return token_id


def _merges(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    merges = []
    for index, merge in enumerate(_strings(metadata, "ggml.merges")):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise ModelFileError(
                f"tokenizer.ggml.merges[{index}] is {shown(merge)}, must be two tokens and a space between"
            )
        merges.append((left, right))
    return merges
