"""fp8 weights: codes in E4M3 (arXiv:2209.05433, no infinities, one NaN of each sign), times scales from another tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.planning.formats import FP8_BLOCK
from pagoda.quantization.dense import bf16, f16, f32

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_DECODERS = {"F32": (f32, 4), "F16": (f16, 2), "BF16": (bf16, 2)}


def e4m3(codes: Bytes, out: Floats) -> None:
    """codes: [n, 1]; out: [n, 1]."""
    np.take(_VALUES, codes, out=out, mode="clip")


def fp8_scales(stored: StoredTensor) -> Floats:
    """What a matrix's codes are multiplied by: [out] in the format "fp8", one scale for the whole of it being repeated; in
    "fp8_block" [⌈out / 128⌉, ⌈in / 128⌉].

    Raises `ModelFileError` where there are none, not so many, or some that are NaN or infinite.
    """
    num_rows, num_columns = stored.info.shape
    by_block = stored.info.format == "fp8_block"
    shape = (-(-num_rows // FP8_BLOCK), -(-num_columns // FP8_BLOCK)) if by_block else (num_rows,)
    scales = np.empty(0, np.float32) if stored.scale is None else _floats(stored.scale)
    if not np.isfinite(scales).all():
        raise ModelFileError(f"tensor {shown(stored.info.name)} in {stored.info.format} has scales that are no numbers")
    if scales.size == 1 and not by_block:
        return np.repeat(scales, num_rows)
    if scales.size != np.prod(shape):
        raise ModelFileError(f"tensor {shown(stored.info.name)} in {stored.info.format} has {scales.size:,} scales")
    return scales.reshape(shape)


def apply_scales(stored: StoredTensor, values: Floats) -> None:
    """values [out, in], the codes' own: times the scales, in float32."""
    scales = fp8_scales(stored)
    for start in range(0, len(values), FP8_BLOCK):
        values[start : start + FP8_BLOCK] *= _scales_of_rows(scales, start, values.shape[1])


def fp8_to_bf16(stored: StoredTensor) -> StoredTensor:
    """The matrix in BF16, each product of code and scale rounded to nearest, ties to even. `FP8_BLOCK` rows at a time, so that
    it takes no more memory than its result."""
    num_rows, num_columns = stored.info.shape
    data, scales = np.empty((num_rows, 2 * num_columns), np.uint8), fp8_scales(stored)
    with np.errstate(all="ignore"):  # what is no number in a damaged file is the model's to refuse
        for start in range(0, num_rows, FP8_BLOCK):
            rows = slice(start, start + FP8_BLOCK)
            values = _VALUES[stored.data[rows]] * _scales_of_rows(scales, start, num_columns)
            data[rows] = _rounded(values).view(np.uint8)
    return StoredTensor(TensorInfo(stored.info.name, stored.info.shape, "BF16", data.nbytes), data)


def _scales_of_rows(scales: Floats, start: int, num_columns: int) -> Floats:
    """Of the `FP8_BLOCK` rows from `start` on: [rows, 1], or [num_columns], the same for all of them."""
    if scales.ndim == 1:
        return scales[start : start + FP8_BLOCK, None]
    return np.repeat(scales[start // FP8_BLOCK], FP8_BLOCK)[:num_columns]


def _rounded(values: Floats) -> npt.NDArray[np.uint16]:
    bits = values.view(np.uint32)
    nearest = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return np.where(np.isnan(values), 0x7FC0, nearest).astype("<u2")


def _floats(scale: StoredTensor) -> Floats:
    decode, size = _DECODERS[scale.info.format]
    values = np.empty((scale.data.size // size, 1), np.float32)
    decode(np.ascontiguousarray(scale.data).reshape(-1, size), values)
    return values.reshape(-1)


def _all_values() -> Floats:
    """What each code means: sign, 4 bits of exponent (bias 7), 3 of fraction; without an exponent 2⁻⁶ × fraction."""
    codes = np.arange(128, dtype=np.float32)
    exponents, fractions = np.floor(codes / 8), codes % 8 / 8
    positive = np.where(exponents == 0, fractions * 2.0**-6, (1 + fractions) * 2.0 ** (exponents - 7))
    positive[127] = np.nan
    return np.concatenate([positive, -positive]).astype(np.float32)


_VALUES = _all_values()
