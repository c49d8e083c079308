"""The tokenizer beside a Hugging Face model: tokenizer.json and the small files around it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagoda import checks
from pagoda.errors import InvalidValueError, ModelFileError, UnsupportedModelError, shown
from pagoda.text.build_backend import byte_level_backend, usable
from pagoda.text.pre_tokenizers import word_splitting
from pagoda.text.token_pieces import SPACE_MARK, PieceCoding
from pagoda.text.tokenizer import Tokenizer, Vocabulary

_MAX_FILE_BYTES = 256 * 2**20
_MAX_TOKEN_ID = 4_000_000
_DEFAULT_TEMPLATE = "default"


def tokenizer_from_directory(path: Path) -> Tokenizer:
    """The tokenizer in a model's directory: tokenizer.json, or GPT-2's vocab.json with merges.txt.

    tokenizer_config.json, special_tokens_map.json, chat_template.jinja (or .json) and generation_config.json (end tokens)
    are read where they are there. Raises `ModelFileError` for files that are missing or unusable, `UnsupportedModelError`
    for a kind of vocabulary that is neither byte-level nor SentencePiece's.
    """
    config = {**_json_object(path / "special_tokens_map.json"), **_json_object(path / "tokenizer_config.json")}
    backend = _backend(path)
    pieces = {token_id: piece for piece, token_id in backend.get_vocab(with_added_tokens=True).items()}
    if not pieces:
        raise ModelFileError(f"{path}: the tokenizer has no tokens")
    if max(pieces) > _MAX_TOKEN_ID:
        raise ModelFileError(f"{path}: token id {max(pieces):,} is beyond the limit of {_MAX_TOKEN_ID:,}")
    added = backend.get_added_tokens_decoder()
    coding, strips = _coding(backend)
    bos, eos = (_named_token(path, backend, config, name) for name in ("bos_token", "eos_token"))
    special = frozenset(token_id for token_id, token in added.items() if token.special)
    with usable(str(path / "tokenizer.json")):
        prefix, suffix = _around(backend)
    return Tokenizer(
        Vocabulary(
            backend=backend,
            pieces=pieces,
            coding=coding,
            # SentencePiece's mark for a space counts in added tokens too (Gemma has runs of spaces among them).
            literal_ids=frozenset(added) if coding == "byte-level" else special,
            special_ids=special | {token_id for token_id in (bos, eos) if token_id is not None},
            vocab_size=max(pieces) + 1,
            bos_token_id=bos,
            eos_token_id=eos,
            end_token_ids=_end_token_ids(path, eos, pieces),
            prefix_ids=_with_or_without(config.get("add_bos_token"), bos, prefix),
            suffix_ids=_with_or_without(config.get("add_eos_token"), eos, suffix),
            strips_leading_space=strips,
            chat_template=_chat_template(path, config),
        )
    )


def _backend(path: Path) -> Any:
    from tokenizers import Tokenizer as Backend

    file = path / "tokenizer.json"
    if file.is_file():
        with usable(str(file)):
            backend = Backend.from_str(_read(file))
        # Limits for training, stored in some files, would cut or lengthen a prompt without a word.
        backend.no_truncation()
        backend.no_padding()
        return backend
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return _gpt2_backend(path)
    if (path / "tokenizer.model").is_file():
        raise ModelFileError(
            f"{path} has a tokenizer.model but no tokenizer.json, which is the one file that can be read"
        )
    raise ModelFileError(f"{path} has no tokenizer.json")


def _gpt2_backend(path: Path) -> Any:
    ids = _json_object(path / "vocab.json")
    for piece, token_id in ids.items():
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id <= _MAX_TOKEN_ID:
            raise ModelFileError(f"{path / 'vocab.json'}: {shown(piece)} has the id {shown(token_id)}")
    lines = _read(path / "merges.txt").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if bad := next((pair for pair in pairs if len(pair) != 2), None):
        raise ModelFileError(f"{path / 'merges.txt'}: {shown(' '.join(bad))} is not two tokens and a space between")
    merges = [(pair[0], pair[1]) for pair in pairs]
    backend = byte_level_backend(ids, merges, word_splitting("gpt-2"), str(path / "merges.txt"))
    if "<|endoftext|>" in ids:
        backend.add_special_tokens(["<|endoftext|>"])
    return backend


def _coding(backend: Any) -> tuple[PieceCoding, bool]:
    """How pieces are written, and whether decoding a whole text removes its first space: both from the decoder's parts."""
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
    parts = state.get("decoders", [state])
    kinds = {part.get("type") for part in parts}
    if "ByteLevel" in kinds:
        return "byte-level", False
    marks_spaces = any(
        part.get("type") == "Replace" and part.get("pattern") == {"String": SPACE_MARK} for part in parts
    )
    if not ({"Metaspace", "ByteFallback"} & kinds or marks_spaces):
        raise UnsupportedModelError(
            "tokenizer decoder", "+".join(map(str, kinds)), ("ByteLevel", "ByteFallback", "Metaspace")
        )
    strips = any(
        (part.get("type") == "Strip" and part.get("content") == " " and part.get("start", 0) > 0)
        or (part.get("type") == "Metaspace" and part.get("prepend_scheme", "always") != "never")
        for part in parts
    )
    return "sentencepiece", strips


def _around(backend: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the file's post-processor puts before and after a text."""
    bare = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _with_or_without(wanted: object, token_id: int | None, found: tuple[int, ...]) -> tuple[int, ...]:
    """tokenizer_config.json's add_bos_token / add_eos_token, where given, outweighs the post-processor."""
    if not isinstance(wanted, bool) or token_id is None:
        return found
    if wanted:
        return found if token_id in found else (token_id, *found)
    return tuple(other for other in found if other != token_id)


def _named_token(path: Path, backend: Any, config: Mapping[str, Any], name: str) -> int | None:
    text = _token_text(config.get(name))
    if text is None:
        return None
    try:
        token_id: int | None = backend.token_to_id(checks.text(name, text))
    except InvalidValueError as error:
        raise ModelFileError(f"{path / 'tokenizer_config.json'}: {error}") from None
    return token_id


def _token_text(value: object) -> str | None:
    """A token as these files write it: its text, or an object with the text in `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _end_token_ids(path: Path, eos: int | None, pieces: Mapping[int, str]) -> frozenset[int]:
    for file in ("generation_config.json", "config.json"):
        found = _json_object(path / file).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        known = frozenset(i for i in ids if isinstance(i, int) and not isinstance(i, bool) and i in pieces)
        if known:
            return known | ({eos} if eos is not None else set())
    return frozenset() if eos is None else frozenset((eos,))


def _chat_template(path: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else chat_template.json, else tokenizer_config.json; of several named ones "default"."""
    if (path / "chat_template.jinja").exists():
        return _read(path / "chat_template.jinja")
    value = _json_object(path / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, Mapping)}
        value = named.get(_DEFAULT_TEMPLATE)
    return value if isinstance(value, str) else None


def _json_object(file: Path) -> dict[str, Any]:
    """The file's object; empty where there is no file."""
    if not file.exists():
        return {}
    try:
        value = json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{file} has {shown(value)}, must be a JSON object")
    return value


def _read(file: Path) -> str:
    if not file.is_file():
        raise ModelFileError(f"{file} is not an ordinary file")
    if (size := file.stat().st_size) > _MAX_FILE_BYTES:
        raise ModelFileError(f"{file} has {size:,} bytes, more than the limit of {_MAX_FILE_BYTES:,}")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{file} cannot be read as UTF-8 text: {error}") from None
