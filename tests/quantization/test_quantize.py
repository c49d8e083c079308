"""Quantization on the way in: what comes back is near what went in, and just that where the blocks can say it."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from pagoda.errors import UnsupportedModelError
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.quantization import dequantize
from pagoda.quantization.quantize import SLICE_BLOCKS, quantize

Floats = npt.NDArray[np.float32]
FORMATS = {"Q8_0": 127, "Q4_0": 8}


def stored(values: Any, format_name: str = "F32") -> StoredTensor:
    wide = np.ascontiguousarray(values, dtype=np.float32)
    data = {
        "F32": lambda: wide,
        "F16": lambda: wide.astype(np.float16),
        "BF16": lambda: (wide.view(np.uint32) >> 16).astype(np.uint16),
    }[format_name]()
    rows = data.view(np.uint8).reshape(len(wide), -1)
    return StoredTensor(TensorInfo("w", wide.shape, format_name, rows.nbytes), rows)


def there_and_back(values: Any, format_name: str) -> Floats:
    return dequantize(quantize(stored(values), format_name))


def weights(seed: int, shape: tuple[int, int], spread: float = 0.02) -> Floats:
    return (spread * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("spread", [1e-3, 0.02, 30.0])
@pytest.mark.parametrize("format_name", FORMATS)
def test_no_weight_moves_by_much_more_than_half_a_step(format_name: str, spread: float) -> None:
    values = weights(1, (64, 256), spread)
    codes = FORMATS[format_name]
    largest = np.abs(values.reshape(-1, 32)).max(1, keepdims=True)
    # Half a step; the scale is rounded to fp16, which moves the last code by at most as much again, and the side of Q4_0
    # that has a code less loses up to a whole step.
    step = largest / codes * (1 + 2**-9)
    moved = np.abs(there_and_back(values, format_name) - values).reshape(-1, 32)
    assert (moved <= step * (0.56 if format_name == "Q8_0" else 1.01)).all()


@pytest.mark.parametrize(("format_name", "decibels"), [("Q8_0", -43.5), ("Q4_0", -21.0)])
def test_noise_of_normally_distributed_weights(format_name: str, decibels: float) -> None:
    values = weights(2, (256, 512))
    noise = there_and_back(values, format_name) - values
    assert 10 * np.log10(np.square(noise).mean() / np.square(values).mean()) < decibels


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_a_block_can_say_stays_what_it_is(format_name: str) -> None:
    codes = FORMATS[format_name]
    rng = np.random.default_rng(3)
    whole = rng.integers(-codes, codes if format_name == "Q4_0" else codes + 1, (40, 32))
    whole[:, 5] = -codes
    scales = np.float16(2.0 ** rng.integers(-10, 3, (40, 1)) * rng.uniform(1, 2, (40, 1))).astype(np.float32)
    values = scales * whole.astype(np.float32)
    assert np.array_equal(there_and_back(values, format_name), values)


@pytest.mark.parametrize("format_name", FORMATS)
def test_quantizing_what_was_quantized_changes_nothing(format_name: str) -> None:
    once = there_and_back(weights(4, (32, 64)), format_name)
    assert np.array_equal(there_and_back(once, format_name), once)


@pytest.mark.parametrize("format_name", FORMATS)
def test_zeros_and_numbers_too_small_for_a_scale_become_zeros(format_name: str) -> None:
    values = np.zeros((2, 64), np.float32)
    values[1] = 1e-9
    assert (there_and_back(values, format_name) == 0).all()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_number_too_large_for_a_scale_becomes_the_largest(format_name: str) -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, 3] = 1e30
    back = there_and_back(values, format_name)
    assert back[0, 3] == np.float32(65504) * FORMATS[format_name]
    assert np.count_nonzero(back) == 1


@pytest.mark.parametrize("damage", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format_name", FORMATS)
def test_what_is_no_number_stays_none_and_only_in_its_own_block(format_name: str, damage: float) -> None:
    values = weights(5, (1, 64))
    values[0, 7] = damage
    back = there_and_back(values, format_name)
    assert not np.isfinite(back[0, 7])
    assert np.isfinite(back[0, 32:]).all()


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("from_format", ["F16", "BF16"])
def test_narrow_formats_are_quantized_from_the_numbers_they_stand_for(format_name: str, from_format: str) -> None:
    narrow = stored(weights(6, (8, 96)), from_format)
    assert np.array_equal(quantize(narrow, format_name).data, quantize(stored(dequantize(narrow)), format_name).data)


@pytest.mark.parametrize("format_name", FORMATS)
def test_slices_and_threads_change_nothing(format_name: str) -> None:
    values = weights(7, (2 * SLICE_BLOCKS // 3 + 1, 96))
    whole = quantize(stored(values), format_name, num_threads=2)
    rows = [quantize(stored(values[row : row + 1]), format_name).data for row in (0, 700, len(values) - 1)]
    assert np.array_equal(whole.data[[0, 700, len(values) - 1]], np.concatenate(rows))


@pytest.mark.parametrize("format_name", FORMATS)
def test_bytes_are_laid_out_as_in_files(format_name: str) -> None:
    values = weights(8, (16, 128))
    kind = gguf.GGMLQuantizationType[format_name]
    result = quantize(stored(values), format_name)
    assert result.info == TensorInfo("w", (16, 128), format_name, result.data.nbytes)
    assert result.data.shape == gguf.quants.quantize(values, kind).shape
    assert np.array_equal(dequantize(result), gguf.quants.dequantize(result.data, kind))


def test_other_formats_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="'Q4_K' is not supported; known: Q8_0, Q4_0"):
        quantize(stored(weights(9, (1, 256))), "Q4_K")
