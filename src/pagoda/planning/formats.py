"""Number formats of stored weights: how many elements share a block, and how many bytes a block takes.

Names and layouts are those of GGUF (ggml's `ggml-common.h`), and of fp8 in safetensors; dense formats are blocks of one
element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """`block_elements` consecutive elements of a row take `block_bytes`."""

    name: str
    block_elements: int
    block_bytes: int


FORMATS = {
    name: WeightFormat(name, elements, size)
    for name, elements, size in (
        ("F32", 1, 4),
        ("F16", 1, 2),
        ("BF16", 1, 2),
        ("Q4_0", 32, 18),  # fp16 scale, 16 bytes of nibbles
        ("Q4_1", 32, 20),  # fp16 scale and minimum
        ("Q5_0", 32, 22),  # as Q4_0, and 4 bytes of fifth bits
        ("Q5_1", 32, 24),
        ("Q8_0", 32, 34),
        ("Q4_K", 256, 144),  # fp16 super-scale and super-minimum, 12 bytes of 6-bit scales, 128 of nibbles
        ("Q5_K", 256, 176),
        ("Q6_K", 256, 210),
    )
}

# E4M3 codes (arXiv:2209.05433), with scales in a tensor of their own, which is not counted here: one for each output, or one
# for each 128 × 128 elements.
FP8_FORMATS = {name: WeightFormat(name, 1, 1) for name in ("fp8", "fp8_block")}
FP8_BLOCK = 128
_KNOWN = FORMATS | FP8_FORMATS


def weight_format(name: str) -> WeightFormat:
    """Raises `UnsupportedModelError` for a format that is not known."""
    if name not in _KNOWN:
        raise UnsupportedModelError("weight format", name, (*FORMATS, "fp8 where quantization_config says how"))
    return _KNOWN[name]


def tensor_bytes(shape: Sequence[int], format_name: str) -> int:
    """Bytes of a tensor stored in a format; its last dimension is cut into blocks.

    Raises `UnsupportedModelError` for an unknown format, `ValueError` if the last dimension is not whole blocks.
    """
    kind = weight_format(format_name)
    last = shape[-1] if shape else 1
    if last % kind.block_elements:
        raise ValueError(f"rows of {last} elements are not whole {kind.name} blocks of {kind.block_elements}")
    return math.prod(shape) // kind.block_elements * kind.block_bytes


# The number formats a model can be computed in, by the names of `EngineConfig.dtype`.
DENSE_FORMATS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a compute dtype ("float32", …). Raises `UnsupportedModelError` for another name."""
    if dtype not in DENSE_FORMATS:
        raise UnsupportedModelError("dtype", dtype, DENSE_FORMATS)
    return FORMATS[DENSE_FORMATS[dtype]].block_bytes


# What --quantization makes of dense matrices. Of Q4_0 and Q4_1 the first gives the lower error per bit: see `quantize`.
QUANTIZED = {"int8": "Q8_0", "int4": "Q4_0"}


def loaded_format(stored: str, in_features: int, quantization: str | None) -> str:
    """The format in which the native path holds a matrix that a file stores in another or the same one.

    quantization: None, "int8" or "int4", for what is stored dense or in fp8 and whose rows are whole blocks. It has no
    products with fp8, which becomes BF16.
    """
    stored = "BF16" if stored in FP8_FORMATS else stored
    if quantization is None or weight_format(stored).block_elements > 1:
        return stored
    wanted = weight_format(QUANTIZED[quantization])
    return stored if in_features % wanted.block_elements else wanted.name


def table_quantization(quantization: str | None) -> str | None:
    """What is made of tables: every token of a text passes through one, and as the tied head it is most of a small model,
    so they keep 8 bits."""
    return "int8" if quantization else None
