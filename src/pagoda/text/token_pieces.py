"""What a token's stored text means in bytes: byte-level BPE and SentencePiece write bytes in two different ways."""

from __future__ import annotations

import re
from typing import Literal

PieceCoding = Literal["byte-level", "sentencepiece"]

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "▁"


def byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in byte-level BPE (GPT-2): printable Latin-1 stands for itself, and the
    other bytes, in order, are the letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return letters


class PieceDecoder:
    """Turns a token's stored text into the bytes it stands for."""

    def __init__(self, coding: PieceCoding) -> None:
        self._letters = byte_letters() if coding == "byte-level" else None

    def __call__(self, piece: str) -> bytes:
        if self._letters is not None:
            try:
                return bytes([self._letters[letter] for letter in piece])
            except KeyError:
                return piece.encode("utf-8", "replace")
        if match := _BYTE_PIECE.fullmatch(piece):
            return bytes([int(match[1], 16)])
        return piece.replace(SPACE_MARK, " ").encode("utf-8", "replace")
