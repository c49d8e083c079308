"""Formats with 32 elements in a block and one fp16 scale, or a scale and a minimum (ggml's `block_q4_0` to `block_q8_0`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def q4_0(blocks: Bytes, out: Floats) -> None:
    """scale × (code − 8). blocks: [n, 18] = scale, nibbles; out: [n, 32]."""
    out[:] = _nibbles(blocks[:, 2:])
    out -= 8
    out *= _half(blocks, 0)


def q4_1(blocks: Bytes, out: Floats) -> None:
    """scale × code + minimum. blocks: [n, 20] = scale, minimum, nibbles; out: [n, 32]."""
    out[:] = _nibbles(blocks[:, 4:])
    out *= _half(blocks, 0)
    out += _half(blocks, 2)


def q5_0(blocks: Bytes, out: Floats) -> None:
    """scale × (code − 16). blocks: [n, 22] = scale, fifth bits, nibbles; out: [n, 32]."""
    out[:] = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    out -= 16
    out *= _half(blocks, 0)


def q5_1(blocks: Bytes, out: Floats) -> None:
    """scale × code + minimum. blocks: [n, 24] = scale, minimum, fifth bits, nibbles; out: [n, 32]."""
    out[:] = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    out *= _half(blocks, 0)
    out += _half(blocks, 2)


def q8_0(blocks: Bytes, out: Floats) -> None:
    """scale × code. blocks: [n, 34] = scale, signed bytes; out: [n, 32]."""
    out[:] = blocks[:, 2:].view(np.int8)
    out *= _half(blocks, 0)


def _half(blocks: Bytes, at: int) -> Floats:
    """The fp16 number at that byte of each block: [n, 1]."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[n, 16] → [n, 32]: elements 0 to 15 are the low nibbles, 16 to 31 the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """[n, 4] → [n, 32], each 0 or 16: bit i of the 32 belongs to element i."""
    bits: Bytes = np.unpackbits(packed, axis=1, bitorder="little")
    return np.left_shift(bits, 4, dtype=np.uint8)
