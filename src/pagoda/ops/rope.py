"""The angles of rotary position embedding, in numpy: one meaning for every backend."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pagoda.planning.model_spec import Llama3RopeScaling, RopeSpec

Float32 = npt.NDArray[np.float32]


def inverse_frequencies(spec: RopeSpec) -> Float32:
    """Angle per position of each rotated pair, [dim / 2], computed in float32 as the models were trained and as
    `transformers` does: base^(-2i / dim) (arXiv:2104.09864), then the spec's scaling."""
    exponents: Float32 = np.divide(np.arange(0, spec.dim, 2), spec.dim, dtype=np.float32)
    powers: Float32 = np.power(np.float32(spec.base), exponents, dtype=np.float32)
    frequencies: Float32 = np.float32(1) / powers
    if spec.llama3 is not None:
        frequencies = _llama3(frequencies, spec.llama3)
    if spec.divisors is not None:
        frequencies = np.divide(frequencies, np.asarray(spec.divisors, dtype=np.float32), dtype=np.float32)
    scaled: Float32 = frequencies / np.float32(spec.linear_factor)
    return scaled


def _llama3(frequencies: Float32, scaling: Llama3RopeScaling) -> Float32:
    """Wavelengths beyond the original context are stretched by `factor`, short ones kept, those between blended."""
    wavelengths = np.float32(2 * math.pi) / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    stretched = frequencies / np.float32(scaling.factor)
    smooth = (np.float32(scaling.original_context_length) / wavelengths - np.float32(low)) / np.float32(high - low)
    blended = (1 - smooth) * stretched + smooth * frequencies
    long, short = (
        wavelengths > scaling.original_context_length / low,
        wavelengths < scaling.original_context_length / high,
    )
    scaled: Float32 = np.select([long, short], [stretched, frequencies], blended)
    return scaled
