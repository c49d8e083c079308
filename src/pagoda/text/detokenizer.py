"""Detokenizer: token ids in, text out, piece by piece. Bytes wait until they are a whole character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenBytes(Protocol):
    """What a detokenizer needs of a tokenizer."""

    @property
    def special_token_ids(self) -> frozenset[int]: ...
    @property
    def strips_leading_space(self) -> bool: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class Detokenizer:
    """The joined pieces are the text of all tokens, however they were cut: both are the UTF-8 decoding of the same bytes.

    A piece never ends inside a character. U+FFFD stands only for bytes that are no UTF-8 whatever follows (one for each
    maximal ill-formed part, as the Unicode standard recommends), or that the text ends in. Time is linear in the bytes.

    skip_special_tokens: control tokens (beginning and end of text, turn markers) have no text.
    continuation: the text goes on after a prompt, so a leading space is part of it. Otherwise the space that a
        SentencePiece vocabulary puts before the first word is removed, as decoding a whole text does.
    """

    def __init__(self, tokenizer: TokenBytes, skip_special_tokens: bool = True, continuation: bool = True) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = tokenizer.special_token_ids if skip_special_tokens else frozenset()
        self._strip_next = tokenizer.strips_leading_space and not continuation
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """The characters that these tokens complete. An id that is no token (it pads the vocabulary) has no text."""
        data = b"".join([self._token_bytes(token_id) for token_id in token_ids if token_id not in self._skipped])
        if data and self._strip_next:
            self._strip_next = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """The rest: U+FFFD where the last character is incomplete, else nothing. Afterwards a new text may begin."""
        return self._decoder.decode(b"", final=True)
