"""Tokenizer: text to token ids and back, whatever file the vocabulary came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pagoda.text.build_backend import usable
from pagoda.text.detokenizer import Detokenizer
from pagoda.text.token_pieces import PieceCoding, PieceDecoder

# Characters from which on a text is worth the cost of starting a batch.
LONG = 4096


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the files say.

    backend: a `tokenizers.Tokenizer` whose added tokens are the special and user-defined ones.
    pieces: token id → text as stored. literal_ids: tokens whose text is plain, not coded as `coding` says.
    special_ids: control tokens. prefix_ids, suffix_ids: what goes around a text (BOS, EOS).
    strips_leading_space: a whole text's first space was put there by the vocabulary.
    vocab_size: the last real token's id + 1; entries behind it only pad the model's matrices.
    """

    backend: Any
    pieces: Mapping[int, str]
    coding: PieceCoding
    literal_ids: frozenset[int]
    special_ids: frozenset[int]
    vocab_size: int
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    end_token_ids: frozenset[int] = frozenset()
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    strips_leading_space: bool = False
    chat_template: str | None = None


class Tokenizer:
    """Made by `tokenizer_from_directory` or `tokenizer_from_gguf`. Safe to use from several threads.

    vocab_size: tokens that exist; ids from there on only pad the model's matrices and must not be chosen.
    end_token_ids: tokens that end a text (end of text, of turn, of message), as far as the files name them.
    chat_template: the Jinja source, or None where the model has none.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._piece_bytes = PieceDecoder(vocabulary.coding)
        self.vocab_size = vocabulary.vocab_size
        self.bos_token_id = vocabulary.bos_token_id
        self.eos_token_id = vocabulary.eos_token_id
        self.end_token_ids = vocabulary.end_token_ids
        self.special_token_ids = vocabulary.special_ids
        self.strips_leading_space = vocabulary.strips_leading_space
        self.chat_template = vocabulary.chat_template

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts BOS before a text."""
        return self.bos_token_id is not None and self.bos_token_id in self._vocabulary.prefix_ids

    def encode(self, text: str, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """The text's token ids. Bytes for which the vocabulary has no token (SmolLM2 lacks a few control characters) have
        none, as with the model's own tokenizer.

        add_special_tokens: put around the text what the vocabulary asks for (BOS, EOS). A text that already begins with
            those tokens gets no second ones.
        parse_special: the name of a control token in the text ("<|im_end|>", "<s>") is that token, as in other engines.
            Otherwise it is ordinary text; use that for text that must not steer the model.
        """
        backend = self._vocabulary.backend if parse_special else self._plain_backend
        # Lone surrogates have no UTF-8; they become "?" here rather than an error in the middle of a batch.
        text = text.encode("utf-8", "replace").decode()
        if len(text) < LONG:
            encoding = backend.encode(text, add_special_tokens=False)
        else:  # the same ids; a batch lets other threads run meanwhile, and without offsets it is six times as fast
            (encoding,) = backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        if not add_special_tokens:
            return ids
        prefix, suffix = list(self._vocabulary.prefix_ids), list(self._vocabulary.suffix_ids)
        if ids[: len(prefix)] != prefix:
            ids = prefix + ids
        if suffix and ids[-len(suffix) :] != suffix:
            ids = ids + suffix
        return ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence: what a `Detokenizer` gives that is fed all at once (no spaces are cleaned up)."""
        detokenizer = Detokenizer(self, skip_special_tokens, continuation=False)
        return detokenizer.push(token_ids) + detokenizer.finish()

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token stands for, not always whole characters; none for an id that is no token."""
        piece = self._vocabulary.pieces.get(token_id)
        if piece is None:
            return b""
        if token_id in self._vocabulary.literal_ids:
            return piece.encode("utf-8", "replace")
        return self._piece_bytes(piece)

    def token_text(self, token_id: int) -> str:
        """One token for people to read: its bytes as text, U+FFFD where they are no whole characters."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_id(self, piece: str) -> int | None:
        """The id of the token stored under this text, e.g. a control token's name."""
        found: int | None = self._vocabulary.backend.token_to_id(piece)
        return found

    @cached_property
    def longest_piece(self) -> int:
        """Characters of the longest token: a text has at least its own length divided by this in tokens."""
        return max(map(len, self._vocabulary.pieces.values()), default=1)

    @cached_property
    def _plain_backend(self) -> Any:
        """A copy that does not look for control tokens (a setting of the whole backend, so not one to switch)."""
        from tokenizers import Tokenizer as Backend

        with usable("the vocabulary"):
            backend = Backend.from_str(self._vocabulary.backend.to_str())
        backend.encode_special_tokens = True
        return backend
