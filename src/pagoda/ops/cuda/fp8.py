"""The cache's 8-bit format, float8_e4m3fn, in integer arithmetic: a GPU before sm_89 has no instructions for it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as kernels address it: an 8-bit float as bytes."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


@triton.jit
def to_stored(x, pointer):
    """x (float32) in the format of what `pointer` points to; bytes are e4m3fn."""
    return to_e4m3(x) if pointer.dtype.element_ty == tl.uint8 else x.to(pointer.dtype.element_ty)


@triton.jit
def to_e4m3(x):
    """Bytes of float32 numbers, rounded to nearest even; beyond ±448 they are ±448; NaN stays NaN.

    e4m3fn (arXiv:2209.05433) has 1 sign bit, 4 exponent bits (bias 7), 3 mantissa bits. A normal number is float32's upper bits
    with the exponent's bias changed, once 20 bits of the mantissa are rounded off. Below 2^-6 the numbers are the
    multiples of 2^-9, to which adding 2^14, whose last bit is 2^-9, rounds.
    """
    bits = x.to(tl.int32, bitcast=True)
    unsigned = bits & 0x7FFFFFFF
    magnitude = tl.minimum(unsigned, 0x43E00000)  # of 448: the bits of numbers that are not negative are in their order
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - ((127 - 7) << 3)
    small = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) & 0xF
    code = tl.where(magnitude < 0x3C800000, small, normal)  # of 2^-6
    code = tl.where(unsigned > 0x7F800000, 0x7F, code)  # beyond infinity: NaN
    return (((bits >> 24) & 0x80) | code).to(tl.uint8)
