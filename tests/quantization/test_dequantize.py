"""Dequantization against the reference implementation in the `gguf` package, on random bytes."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.planning.formats import FORMATS
from pagoda.quantization import dequantize
from pagoda.quantization.dequantization import SLICE_ELEMENTS

# Where the fp16 numbers of a block are: random bytes there would often be infinities or NaNs.
HALVES = {
    "F16": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def random_tensor(name: str, rows: int, columns: int, seed: int = 0) -> StoredTensor:
    kind = FORMATS[name]
    rng = np.random.default_rng(seed)
    if name in ("F32", "BF16"):
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        data = (
            values.view(np.uint8) if name == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        )
        return StoredTensor(TensorInfo("x", (rows, columns), name, data.size), data)
    blocks = rng.integers(0, 256, (rows * columns // kind.block_elements, kind.block_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        scales = rng.standard_normal((len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    data = blocks.reshape(rows, -1)
    return StoredTensor(TensorInfo("x", (rows, columns), name, data.size), data)


def fill_codes(stored: StoredTensor, byte: int) -> None:
    """Every byte of a quantized tensor that is not of an fp16 number becomes this one."""
    name = stored.info.format
    blocks = stored.data.reshape(-1, FORMATS[name].block_bytes)
    halves = {at: blocks[:, at : at + 2].copy() for at in HALVES[name]}
    blocks[:] = byte
    for at, half in halves.items():
        blocks[:, at : at + 2] = half


def reference(stored: StoredTensor) -> npt.NDArray[np.float32]:
    data = stored.data
    if stored.info.format in ("F32", "F16"):
        return data.view(f"<f{4 if stored.info.format == 'F32' else 2}").astype(np.float32)
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[stored.info.format])


@pytest.mark.parametrize("name", FORMATS)
def test_bit_equal_to_the_reference(name: str) -> None:
    stored = random_tensor(name, 24, 512)
    result = dequantize(stored)
    assert result.dtype == np.float32
    assert result.shape == (24, 512)
    assert np.array_equal(result.view(np.uint32), reference(stored).view(np.uint32))


@pytest.mark.parametrize("name", ["F32", "Q5_1", "Q6_K"])
def test_a_tensor_of_several_slices_and_an_odd_rest(name: str) -> None:
    rows = 2 * SLICE_ELEMENTS // 768 + 1
    stored = random_tensor(name, rows, 768, seed=1)
    assert np.array_equal(dequantize(stored), reference(stored))


@pytest.mark.parametrize("shape", [(512,), (2, 256), (2, 2, 128), (2, 2, 2, 64)])
def test_shape_is_that_of_the_tensor(shape: tuple[int, ...]) -> None:
    values = np.arange(512, dtype="<f4")
    rows = 512 // shape[-1]
    stored = StoredTensor(TensorInfo("x", shape, "F32", 2048), values.view(np.uint8).reshape(rows, -1))
    assert np.array_equal(dequantize(stored), values.reshape(shape))


def test_a_single_number_and_an_empty_tensor() -> None:
    one = StoredTensor(TensorInfo("x", (), "F32", 4), np.array([[2.5]], "<f4").view(np.uint8))
    assert dequantize(one) == np.float32(2.5)
    none = StoredTensor(TensorInfo("x", (3, 0), "F32", 0), np.empty((3, 0), np.uint8))
    assert dequantize(none).shape == (3, 0)


def test_the_result_is_not_a_view_of_the_file() -> None:
    data = np.zeros((1, 8), np.uint8)
    data.flags.writeable = False
    result = dequantize(StoredTensor(TensorInfo("x", (2,), "F32", 8), data))
    result[0] = 1
    assert data.sum() == 0


def test_infinite_scales_give_no_warning() -> None:
    block = np.zeros((1, 34), np.uint8)
    block[0, 1] = 0x7C  # +infinity in fp16
    assert np.isnan(dequantize(StoredTensor(TensorInfo("x", (32,), "Q8_0", 34), block))).all()


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    data = np.array([0x3F80, 0xC000], "<u2").view(np.uint8).reshape(1, -1)
    assert dequantize(StoredTensor(TensorInfo("x", (2,), "BF16", 4), data)).tolist() == [1.0, -2.0]


def test_unknown_format_is_refused_by_name() -> None:
    stored = StoredTensor(TensorInfo("x", (256,), "IQ2_XS", 74), np.zeros((1, 74), np.uint8))
    with pytest.raises(UnsupportedModelError, match="'IQ2_XS' is not supported; known: F32, F16"):
        dequantize(stored)


@pytest.mark.parametrize(("shape", "size"), [((64,), 34), ((33,), 34), ((32,), 35)])
def test_bytes_that_do_not_fit_the_shape_are_refused(shape: tuple[int, ...], size: int) -> None:
    stored = StoredTensor(TensorInfo("x", shape, "Q8_0", size), np.zeros((1, size), np.uint8))
    with pytest.raises(ModelFileError, match="in Q8_0 does not have"):
        dequantize(stored)
