"""Weights taken from stored bytes: any formats in one product, exact where the number format allows it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.ops.reference_weights import TorchWeightOps
from pagoda.quantization import dequantize

CPU = torch.device("cpu")
DENSE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def stored(values: torch.Tensor) -> StoredTensor:
    """As a checkpoint hands it over: bytes of a mapped file, which must not be written to."""
    name = next(name for name, dtype in DENSE.items() if dtype == values.dtype)
    rows = values.reshape(-1, values.shape[-1])
    data = rows.view(torch.uint8).numpy().copy()
    data.flags.writeable = False
    return StoredTensor(TensorInfo("x", tuple(values.shape), name, data.nbytes), data)


def quantized(rng: np.random.Generator, rows: int) -> StoredTensor:
    """Q8_0 of 64 columns: an fp16 scale and 32 signed bytes, twice a row."""
    scales = rng.random((rows, 2, 1)).astype(np.float16).view(np.uint8)
    codes = rng.integers(0, 256, (rows, 2, 32)).astype(np.uint8)
    data = np.concatenate([scales, codes], axis=2).reshape(rows, -1)
    return StoredTensor(TensorInfo("q", (rows, 64), "Q8_0", data.nbytes), data)


@pytest.mark.parametrize("dtype", DENSE.values(), ids=str)
def test_a_product_stacks_matrices_of_different_formats_with_their_biases(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [
        torch.randn(rows, 64, generator=generator).to(kind)
        for rows, kind in zip((3, 2, 4), DENSE.values(), strict=True)
    ]
    biases = [torch.randn(rows, generator=generator) for rows in (3, 2, 4, 5)]
    blocks = quantized(np.random.default_rng(0), 5)

    weight = TorchWeightOps(CPU, dtype).linear([*map(stored, parts), blocks], [stored(bias) for bias in biases])

    expected = torch.cat([part.float() for part in parts] + [torch.from_numpy(dequantize(blocks))]).to(dtype)
    assert torch.equal(weight.values, expected)
    assert weight.bias is not None
    assert torch.equal(weight.bias, torch.cat(biases).to(dtype))


@pytest.mark.parametrize("kind", DENSE.values(), ids=str)
def test_a_table_in_the_models_own_dtype_is_bit_for_bit_the_files(kind: torch.dtype) -> None:
    values = torch.randn(5, 8, generator=torch.Generator().manual_seed(1)).to(kind)

    assert torch.equal(TorchWeightOps(CPU, kind).table(stored(values)).values, values)


def test_gains_stay_in_float32_whatever_the_models_dtype() -> None:
    gain = torch.tensor([1.0009765, 0.3333333])

    assert torch.equal(TorchWeightOps(CPU, torch.bfloat16).vector(stored(gain)).values, gain)


def test_a_weight_is_a_copy_so_the_file_may_be_closed() -> None:
    values = np.ones((2, 4), dtype=np.float32)
    weight = TorchWeightOps(CPU, torch.float32).table(
        StoredTensor(TensorInfo("x", (2, 4), "F32", values.nbytes), values.view(np.uint8))
    )
    values[:] = 0

    assert weight.values.eq(1).all()
