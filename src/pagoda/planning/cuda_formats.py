"""Quantized matrices on the GPU: the planes that kernels read in order, their bytes, and which matrices are held so.

Codes of 4 bits, and the low bits of longer ones, lie in units of four 32-bit words for 32 inputs: bits 4k to 4k + 3 of word w
are of input 4k + w, so that what is masked out of four words is of neighbours. What a code has above 4 bits is in a plane of
its own: number w of a unit's four has in its bits k (or 2k and 2k + 1) those of input 4k + w. Codes of 8 bits are in order.
Nothing is widened but the 6-bit scales of K-quants, which take a byte each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pagoda.planning.formats import weight_format

Number = Literal["uint8", "int8", "int16", "int32", "float16", "float32"]
_SIZES: dict[Number, int] = {"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Plane:
    """`count` numbers for each `inputs` inputs (0: for a whole row) of `outputs` outputs; last groups may be incomplete."""

    name: str
    number: Number
    inputs: int
    count: int = 1
    outputs: int = 1

    def shape(self, out_features: int, in_features: int) -> tuple[int, int]:
        groups = -(-in_features // self.inputs) if self.inputs else 1
        return -(-out_features // self.outputs), groups * self.count

    def num_bytes(self, out_features: int, in_features: int) -> int:
        return math.prod(self.shape(out_features, in_features)) * _SIZES[self.number]


@dataclass(frozen=True, slots=True)
class CudaFormat:
    """Rows are whole multiples of `unit` inputs."""

    name: str
    unit: int
    planes: tuple[Plane, ...]

    def tensor_bytes(self, shape: Sequence[int]) -> int:
        """Of a matrix [out, in], or of several of that shape, [..., out, in]."""
        return math.prod(shape[:-2]) * sum(plane.num_bytes(*shape[-2:]) for plane in self.planes)

    def row_bytes(self, shape: Sequence[int]) -> int:
        """Of one row of a table: what reading it takes."""
        return sum(plane.num_bytes(1, shape[-1]) for plane in self.planes)


_NIBBLES = Plane("codes", "int32", 32, count=4)
_BYTES = Plane("codes", "uint8", 1)
_FIFTH_BITS = Plane("high", "uint8", 32, count=4)
_SCALES, _MINS = (Plane(name, "float16", 32) for name in ("scales", "mins"))
# Of K-quants: what multiplies the sub-scales of 256 inputs.
_SUB_SCALES, _SUB_MINS = (Plane(name, "uint8", 32) for name in ("scales", "mins"))
_SUPER_SCALES, _SUPER_MINS = (Plane(name, "float16", 256) for name in ("super_scales", "super_mins"))
_TWO_LEVELS = (_SUB_SCALES, _SUB_MINS, _SUPER_SCALES, _SUPER_MINS)
_PER_OUTPUT = Plane("scales", "float32", 0)

CUDA_FORMATS = {
    each.name: each
    for each in (
        CudaFormat("Q4_0", 32, (_NIBBLES, _SCALES)),
        CudaFormat("Q4_1", 32, (_NIBBLES, _SCALES, _MINS)),
        CudaFormat("Q5_0", 32, (_NIBBLES, _FIFTH_BITS, _SCALES)),
        CudaFormat("Q5_1", 32, (_NIBBLES, _FIFTH_BITS, _SCALES, _MINS)),
        CudaFormat("Q8_0", 32, (_BYTES, _SCALES)),
        CudaFormat("Q4_K", 256, (_NIBBLES, *_TWO_LEVELS)),
        CudaFormat("Q5_K", 256, (_NIBBLES, _FIFTH_BITS, *_TWO_LEVELS)),
        CudaFormat(
            "Q6_K", 256, (_NIBBLES, Plane("high", "int16", 32, count=4), Plane("scales", "int8", 16), _SUPER_SCALES)
        ),
        # One scale for each output, symmetric (LLM.int8(), arXiv:2208.07339, vector-wise; arXiv:2209.05433).
        CudaFormat("int8", 8, (_BYTES, _PER_OUTPUT)),
        CudaFormat("fp8", 8, (_BYTES, _PER_OUTPUT)),
        # A scale for 128 × 128 numbers (DeepSeek-V3, arXiv:2412.19437).
        CudaFormat("fp8_block", 8, (_BYTES, Plane("scales", "float32", 128, outputs=128))),
        # As GPTQ's usual groups (arXiv:2210.17323), symmetric.
        CudaFormat("int4", 32, (_NIBBLES, Plane("scales", "float16", 128))),
    )
}
# What --quantization makes of matrices that are stored dense.
CUDA_QUANTIZATIONS = ("int8", "int4", "fp8")


def packed_bytes(format_name: str, shape: Sequence[int]) -> int:
    """Bytes of a matrix [out, in] held in one of `CUDA_FORMATS`."""
    return CUDA_FORMATS[format_name].tensor_bytes(shape)


def packed_format(stored: str, in_features: int, quantization: str | None) -> CudaFormat | None:
    """The format in which a matrix is held that a file stores as `stored`; None: dense, in the activations' format.

    quantization: None or one of `CUDA_QUANTIZATIONS`, for what is stored dense and whose rows are whole units. It is None for
    embedding tables and heads, which stay dense unless they are stored quantized.
    """
    if stored not in CUDA_FORMATS and weight_format(stored).block_elements == 1 and quantization is not None:
        stored = quantization
    held = CUDA_FORMATS.get(stored)
    return held if held is not None and in_features % held.unit == 0 else None
