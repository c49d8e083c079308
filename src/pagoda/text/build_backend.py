"""Builds a `tokenizers.Tokenizer` from a bare vocabulary: tokens with merges (byte-level), or with scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pagoda.errors import ModelFileError, PagodaError, shown
from pagoda.text.pre_tokenizers import WordSplitting, build_pre_tokenizer
from pagoda.text.token_pieces import SPACE_MARK


@contextmanager
def usable(source: str) -> Iterator[None]:
    """Whatever the `tokenizers` library says against a file becomes a `ModelFileError`, its panics included (pyo3 makes
    those a BaseException)."""
    try:
        yield
    except PagodaError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"{source} is not a usable tokenizer: {reason}") from None


def byte_level_backend(
    ids: Mapping[str, int], merges: Sequence[tuple[str, str]], splitting: WordSplitting, source: str
) -> Any:
    """Byte-level BPE (GPT-2). merges: pairs in order of rank. Raises `ModelFileError` naming a merge of unknown tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    try:
        model = models.BPE(dict(ids), list(merges), ignore_merges=splitting.ignore_merges)
    except Exception as error:
        reason = _bad_merge(ids, merges) or f"the merges are not usable: {' '.join(str(error).split())[:200]}"
        raise ModelFileError(f"{source}: {reason}") from None
    backend = Tokenizer(model)
    if splitting.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = build_pre_tokenizer(splitting)
    backend.decoder = decoders.ByteLevel()
    return backend


def sentencepiece_backend(
    ids: Mapping[str, int], scores: Mapping[str, float], unknown: str | None, add_space_prefix: bool
) -> Any:
    """BPE as SentencePiece does it: the neighbours whose joined piece has the best score are joined first.

    ids: every piece. scores: only those that may be made by joining. Characters without a piece are written as bytes
    (pieces "<0x00>" to "<0xFF>"), where the vocabulary has those.
    """
    from tokenizers import Tokenizer, models, normalizers

    byte_fallback = all(f"<0x{byte:02X}>" in ids for byte in range(256))
    merges = _merges_from_scores(ids, scores)
    with usable("tokenizer.ggml.tokens"):
        model = models.BPE(dict(ids), merges, unk_token=unknown, fuse_unk=True, byte_fallback=byte_fallback)
    backend = Tokenizer(model)
    mark_spaces = normalizers.Replace(" ", SPACE_MARK)
    prefix = [normalizers.Prepend(SPACE_MARK)] if add_space_prefix else []
    backend.normalizer = normalizers.Sequence([*prefix, mark_spaces])
    return backend


def add_tokens(backend: Any, special: Iterable[str], user_defined: Iterable[str]) -> None:
    """Makes these tokens (already in the vocabulary) findable in a text before it is cut into words."""
    from tokenizers import AddedToken

    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in user_defined])


def _merges_from_scores(ids: Mapping[str, int], scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """A ranked list of merges that joins in the order of scores: every way of cutting a piece in two known pieces."""
    by_score = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: (-scores[piece], ids[piece]))
    merges: list[tuple[str, str]] = []
    for piece in by_score:
        cuts = [
            (piece[:at], piece[at:]) for at in range(1, len(piece)) if piece[:at] in scores and piece[at:] in scores
        ]
        merges += sorted(cuts, key=lambda cut: (ids[cut[0]], ids[cut[1]]))
    return merges


def _bad_merge(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> str | None:
    for index, (left, right) in enumerate(merges):
        for piece in (left, right, left + right):
            if piece not in ids:
                return f"merge {index:,} needs the token {shown(piece)}, which the vocabulary does not have"
    return None
