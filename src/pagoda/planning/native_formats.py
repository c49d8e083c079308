"""Sizes of what the native path holds: packed matrices and rows of activations. csrc/format.h and csrc/tensor.h in Python,
so that planning needs neither the native module nor a file."""

from __future__ import annotations

LANES = 16  # outputs of a tile
GROUP = 32  # inputs that share a scale of a quantized activation
GROUP_BYTES = 12  # that scale, and sums
LINE = 64


def form_bytes(form: str, width: int, rows: int) -> int:
    """Bytes of so many rows of a tensor in one form: "f32", "bf16" or "q8" (codes, then a group for each 32)."""
    if form == "f32":
        return rows * _row_bytes(4 * width)
    if form == "bf16":
        return rows * _row_bytes(-(-width // 2) * 4)
    return rows * _row_bytes(width) + aligned(rows * (width // GROUP) * GROUP_BYTES)


def _row_bytes(num_bytes: int) -> int:
    """From one row to the next: an odd number of cache lines."""
    return (-(-num_bytes // LINE) | 1) * LINE


def aligned(num_bytes: int) -> int:
    """Up to whole cache lines."""
    return -(-num_bytes // LINE) * LINE


def packed_bytes(format_name: str, out_features: int, in_features: int) -> int:
    """Bytes of a packed matrix without its bias: tiles of 16 outputs, the last one padded, of whole-line planes.

    Raises KeyError for a format that cannot be packed.
    """
    pairs, units, blocks = -(-in_features // 2), in_features // 32, in_features // 256
    nibbles, fifths, halves, bytes_per_32 = units * 256, units * 64, units * 32, units * 16
    planes = {
        "F32": (in_features * 64,),
        "F16": (in_features * 32,),
        "BF16": (pairs * 64,),
        "Q4_0": (nibbles, halves),
        "Q4_1": (nibbles, halves, halves),
        "Q5_0": (nibbles, fifths, halves),
        "Q5_1": (nibbles, fifths, halves, halves),
        "Q8_0": (units * 512, halves),
        "Q4_K": (nibbles, bytes_per_32, bytes_per_32, blocks * 32, blocks * 32),
        "Q5_K": (nibbles, fifths, bytes_per_32, bytes_per_32, blocks * 32, blocks * 32),
        "Q6_K": (nibbles, units * 128, units * 32, blocks * 32),
    }[format_name]
    return -(-out_features // LANES) * sum(aligned(plane) for plane in planes)
