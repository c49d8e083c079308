"""A token's place in the line and its weight, as `torch_sampler` has them. Parts of kernels.

A token's key is one number: the logit counted down from the largest float there is, as the order of a float's bits has it, then
the id. Keys ascend along the line, and no two of a row are equal, so whatever is chosen is chosen by comparing integers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda.planning import cuda_sampling

BINS = tl.constexpr(cuda_sampling.BINS)
ID_BITS = tl.constexpr(cuda_sampling.MOST_TOKENS.bit_length() - 1)
LAST = tl.constexpr((cuda_sampling.MOST_TOKENS << 32) - 1)  # behind all tokens
_ID_MASK = tl.constexpr(cuda_sampling.MOST_TOKENS - 1)
_LARGEST = tl.constexpr(0x7FFFFFFF)
_INFINITY = tl.constexpr(0x7F800000)
_ABOVE_NUMBERS = tl.constexpr(0x7FFFFFFF - 0x7F800000)  # +inf, counted down
_ONE = tl.constexpr(2.0**40)  # the largest token's weight


@triton.jit
def keys_of(logits, ids):
    """Keys, int64, of float32 logits. NaN comes first, and +inf next."""
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True)  # -0.0 is the equal of 0.0
    ordered = bits ^ ((bits >> 31) & _LARGEST)
    ordered = tl.where((bits & _LARGEST) <= _INFINITY, ordered, _LARGEST)
    return ((-ordered.to(tl.int64) + _LARGEST) << ID_BITS) | ids


@triton.jit
def logit_of(key):
    """The logit that a key was made of; of NaN some NaN."""
    ordered = (-(key >> ID_BITS) + _LARGEST).to(tl.int32)
    return (ordered ^ ((ordered >> 31) & _LARGEST)).to(tl.float32, bitcast=True)


@triton.jit
def id_of(key):
    return (key & _ID_MASK).to(tl.int32)


@triton.jit
def is_no_number(key):
    """Whether the key's logit is NaN or +inf."""
    return (key >> ID_BITS) <= _ABOVE_NUMBERS


@triton.jit
def weights_of(logits, peak, temperature):
    """floor(2**40 × exp((logit - peak) / temperature)), int64. temperature: float64."""
    exponents = (logits.to(tl.float64) - peak.to(tl.float64)) / temperature
    return (tl.exp(exponents) * _ONE).to(tl.int64)


@triton.jit
def bins_of(logits, peak, bins_per_unit):
    """Which of the row's bins each logit falls into; bins ascend along the line, and equal logits share one.

    Just subtraction and multiplication, each of which keeps the order when it rounds. What is too far from the peak, or so far
    that the difference is infinite, is in the last one.
    """
    distance = (peak - logits) * bins_per_unit
    return tl.where(distance < BINS - 1, distance, BINS - 1).to(tl.int32)
