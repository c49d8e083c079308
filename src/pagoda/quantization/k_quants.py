"""K-quants: 256 elements in a block, sub-blocks with integer scales under fp16 super-scales (ggml: `block_q4_K` and others)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def q4_k(blocks: Bytes, out: Floats) -> None:
    """scale × code − minimum. blocks: [n, 144] = super-scale, super-minimum, 12 of scales, 128 of nibbles; out: [n, 256]."""
    _scale_and_shift(blocks, _codes_of_4_bits(blocks[:, 16:144]), out)


def q5_k(blocks: Bytes, out: Floats) -> None:
    """As Q4_K with a fifth bit. blocks: [n, 176] = … 12 of scales, 32 of fifth bits, 128 of nibbles; out: [n, 256]."""
    codes = _codes_of_4_bits(blocks[:, 48:176])
    fifth = blocks[:, 16:48]
    for sub in range(8):  # bit `sub` of byte i belongs to element i of that sub-block
        codes[:, sub] |= ((fifth >> sub) & 1) << 4
    _scale_and_shift(blocks, codes, out)


def q6_k(blocks: Bytes, out: Floats) -> None:
    """scale × (code − 32), 16 signed scales. blocks: [n, 210] = 128 low nibbles, 64 upper bits, scales, super-scale."""
    n = len(blocks)
    low = blocks[:, :128].reshape(n, 2, 64)
    upper = blocks[:, 128:192].reshape(n, 2, 32)
    codes = np.concatenate([low & 15, low >> 4], axis=2).reshape(n, 2, 4, 32)  # each half: 64 low, then 64 high nibbles
    for quarter in range(4):
        codes[:, :, quarter] |= ((upper >> (2 * quarter)) & 3) << 4
    scales = blocks[:, 208:210].view("<f2").astype(np.float32) * blocks[:, 192:208].view(np.int8)  # [n, 16]
    values = out.reshape(n, 16, 16)
    values[:] = codes.reshape(n, 16, 16)
    values -= 32
    values *= scales[:, :, None]


def _codes_of_4_bits(packed: Bytes) -> Bytes:
    """[n, 128] → [n, 8, 32]: of each 32 bytes the low nibbles are one sub-block, the high ones the next."""
    n = len(packed)
    quarters = packed.reshape(n, 4, 32)
    codes = np.empty((n, 4, 2, 32), np.uint8)
    codes[:, :, 0] = quarters & 15
    codes[:, :, 1] = quarters >> 4
    return codes.reshape(n, 8, 32)


def _scale_and_shift(blocks: Bytes, codes: Bytes, out: Floats) -> None:
    """out = super-scale × scale × code − super-minimum × minimum, for codes [n, 8, 32]."""
    packed = blocks[:, 4:16]
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    # Eight scales and eight minima of 6 bits: four of each whole, of the others the upper two bits are above those.
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    super_scale, super_minimum = (blocks[:, at : at + 2].view("<f2").astype(np.float32) for at in (0, 2))
    values = out.reshape(codes.shape)
    values[:] = codes
    values *= (super_scale * scales)[:, :, None]
    values -= (super_minimum * minima)[:, :, None]
