"""Sizes of what the native path holds: packed matrices and rows of activations. csrc/format.h and csrc/tensor.h in Python,
so that planning needs neither the native module nor a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pagoda.planning.kv_format import KV_FORMATS

Form = Literal["f32", "bf16", "q8"]  # of rows of activations: float32; bf16; codes of 8 bits, with a scale for each 32
Forms = frozenset[Form]
FORMS: tuple[Form, ...] = ("f32", "bf16", "q8")
F32: Forms = frozenset({"f32"})
LANES = 16  # outputs of a tile
GROUP = 32  # inputs that share a scale of a quantized activation
GROUP_BYTES = 16  # that scale, and sums
LINE = 64

# Of K and V, by the names of `kv_cache_dtype`.
NATIVE_KV_FORMATS = {"bfloat16": KV_FORMATS["bf16"], "int8": KV_FORMATS["int8"]}
# In int8 a head is whole cache lines for 16 tokens, and its products with numbers of 16 bits fit 32 (csrc/kv_format.h).
INT8_KV_MULTIPLE = 4
INT8_KV_MOST = 512


def has_int8_kv(head_dim: int) -> bool:
    """Whether heads of so many numbers can be cached in int8."""
    return head_dim % INT8_KV_MULTIPLE == 0 and head_dim <= INT8_KV_MOST


def input_form(format_name: str) -> Form:
    """What a product with weights of that format multiplies them with."""
    return "f32" if format_name in ("F32", "F16") else "bf16" if format_name == "BF16" else "q8"


def in_order(forms: Iterable[Form]) -> list[Form]:
    """Always the same order, so that the same model always gets the same arena."""
    return sorted(forms, key=FORMS.index)


def form_bytes(form: Form, width: int, rows: int) -> int:
    """Bytes of so many rows of a tensor in one form; of q8 the codes first, then what goes with each 32."""
    if form == "f32":
        return rows * _row_bytes(4 * width)
    if form == "bf16":
        return rows * _row_bytes(-(-width // 2) * 4)
    return rows * (_row_bytes(width) + _row_bytes(width // GROUP * GROUP_BYTES))


def _row_bytes(num_bytes: int) -> int:
    """From one row to the next: an odd number of cache lines."""
    return (-(-num_bytes // LINE) | 1) * LINE


def aligned(num_bytes: int) -> int:
    """Up to whole cache lines."""
    return -(-num_bytes // LINE) * LINE


def packed_bytes(format_name: str, out_features: int, in_features: int) -> int:
    """Bytes of a packed matrix without its bias: tiles of 16 outputs, the last one padded, each of whole lines.

    Raises KeyError for a format that cannot be packed.
    """
    dense = {"F32": in_features * 64, "F16": in_features * 32, "BF16": -(-in_features // 2) * 64}
    tile = dense[format_name] if format_name in dense else in_features // 32 * _UNIT_BYTES[format_name]
    tile += in_features // 256 * _SUPER_BYTES.get(format_name, 0)
    return -(-out_features // LANES) * aligned(tile)


# Of 16 outputs × 32 inputs; and what goes ahead of 8 such units.
_UNIT_BYTES = {
    "Q4_0": 288,
    "Q4_1": 320,
    "Q5_0": 352,
    "Q5_1": 384,
    "Q8_0": 544,
    "Q4_K": 288,
    "Q5_K": 352,
    "Q6_K": 416,
}
_SUPER_BYTES = {"Q4_K": 64, "Q5_K": 64, "Q6_K": 32}


@dataclass(frozen=True, slots=True)
class PackedFormat:
    """A weight packed for the native path. A vector of that kind is a bias: float32 beside its matrix, for whole tiles.
    Of three dimensions it is a matrix of each expert."""

    name: str

    def tensor_bytes(self, shape: Sequence[int]) -> int:
        if len(shape) == 1:
            return packed_bytes(self.name, shape[0], 1)
        return math.prod(shape[:-2]) * packed_bytes(self.name, *shape[-2:])

    def row_bytes(self, shape: Sequence[int]) -> int:
        """A row's share of its tile."""
        return packed_bytes(self.name, LANES, shape[1]) // LANES
