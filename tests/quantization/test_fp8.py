"""fp8 weights: every code as torch reads it, and scales for a tensor, for outputs, and for blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.errors import ModelFileError
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.quantization import dequantize, fp8_scales
from pagoda.quantization.fp8 import fp8_to_bf16
from tests.fp8_model import quantized, spread

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def stored(codes: torch.Tensor, scale: torch.Tensor | None, format_name: str = "fp8") -> StoredTensor:
    data = codes.view(torch.uint8).numpy()
    held = None
    if scale is not None:
        raw = scale.reshape(1, -1).view(torch.uint8).numpy()
        held = StoredTensor(TensorInfo("w_scale", tuple(scale.shape), DTYPES[scale.dtype], raw.nbytes), raw)
    return StoredTensor(TensorInfo("w", tuple(codes.shape), format_name, data.nbytes), data, held)


def test_every_code_is_the_number_that_torch_reads() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(2, 128)
    values = dequantize(stored(codes, torch.ones(1)))
    assert np.array_equal(values, codes.float().numpy(), equal_nan=True)
    assert np.isnan(values).sum() == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["tensor", "channel", "block"])
def test_codes_times_scales_are_exact_in_float32_and_rounded_once_in_bf16(kind: str, dtype: torch.dtype) -> None:
    # Rows and columns of several blocks, the last ones incomplete.
    weight = torch.randn(300, 200, generator=torch.Generator().manual_seed(1))
    codes, scale = quantized(weight, kind, dtype)
    expected = codes.float() * spread(scale.float(), weight.shape)
    tensor = stored(codes, scale, "fp8_block" if kind == "block" else "fp8")
    assert np.array_equal(dequantize(tensor), expected.numpy())
    narrow = fp8_to_bf16(tensor)
    assert narrow.info.format == "BF16"
    assert torch.equal(torch.from_numpy(narrow.data.copy()).view(torch.bfloat16), expected.bfloat16())
    assert (expected - weight).abs().max() < weight.abs().max() / 8


def test_codes_that_are_no_numbers_stay_none() -> None:
    codes = torch.tensor([[0x7F, 0xFF, 0x38, 0x38]], dtype=torch.uint8).view(torch.float8_e4m3fn)
    values = dequantize(fp8_to_bf16(stored(codes, torch.ones(1))))
    assert np.isnan(values[0]).tolist() == [True, True, False, False]


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), float("-inf")])
def test_scales_that_are_no_numbers_are_refused(scale: float) -> None:
    with pytest.raises(ModelFileError, match="tensor 'w' in fp8 has scales that are no numbers"):
        dequantize(stored(torch.zeros(3, 4).to(torch.float8_e4m3fn), torch.tensor([1.0, scale, 1.0])))


def test_one_scale_is_that_of_every_output() -> None:
    codes = torch.zeros(3, 4).to(torch.float8_e4m3fn)
    assert fp8_scales(stored(codes, torch.tensor(0.5))).tolist() == [0.5] * 3


@pytest.mark.parametrize(("scale", "kind"), [(None, "fp8"), (torch.ones(2), "fp8"), (torch.ones(3), "fp8_block")])
def test_scales_that_do_not_belong_to_the_shape_are_refused(scale: torch.Tensor | None, kind: str) -> None:
    with pytest.raises(ModelFileError, match=rf"tensor 'w' in {kind} has \d scales"):
        dequantize(stored(torch.zeros(3, 4).to(torch.float8_e4m3fn), scale, kind))
