"""Packing is exact: a packed matrix has the numbers that its file means; what is quantized while loading is near its own."""

from __future__ import annotations

import pytest
import torch

from pagoda.ops.cuda.packed_embed import embed_packed
from pagoda.ops.cuda.packed_formats import allocate, quantize_rows
from pagoda.ops.cuda.weights import PackedMatrix
from pagoda.planning.cuda_formats import CUDA_FORMATS, packed_bytes
from tests.kernels.packed import random_matrix, scaled
from tests.parity.cuda import DEVICE


def unpacked(matrix: PackedMatrix, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Every row, by the kernel that looks rows up."""
    rows, columns = matrix.shape
    out = torch.full((rows, columns), torch.nan, dtype=dtype, device=DEVICE)
    embed_packed(torch.arange(rows, dtype=torch.int32, device=DEVICE), matrix, 1.0, out)
    return out.cpu()


@pytest.mark.parametrize("name", CUDA_FORMATS)
def test_bit_equal_to_what_the_file_means(name: str) -> None:
    matrix, numbers = random_matrix(name, 3, 1280, seed=0)
    assert torch.equal(unpacked(matrix), numbers)


@pytest.mark.parametrize("name", [name for name, kind in CUDA_FORMATS.items() if kind.unit < 256])
def test_rows_that_end_within_a_block_of_256(name: str) -> None:
    columns = 3 * CUDA_FORMATS[name].unit
    matrix, numbers = random_matrix(name, 130 if name == "fp8_block" else 2, columns, seed=1)
    assert torch.equal(unpacked(matrix), numbers)


@pytest.mark.parametrize("name", CUDA_FORMATS)
def test_bytes_are_the_planned_ones(name: str) -> None:
    matrix, _ = random_matrix(name, 130, 512, seed=3)
    assert matrix.num_bytes == packed_bytes(name, (130, 512))


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0"])
def test_looked_up_rows_are_scaled_and_rounded_once(name: str) -> None:
    matrix, numbers = random_matrix(name, 6, 256, seed=4)
    ids = torch.tensor([5, 0, 5, 3])
    out = torch.empty(4, 256, dtype=torch.float16, device=DEVICE)
    embed_packed(ids.to(DEVICE), matrix, 0.5, out)
    assert torch.equal(out.cpu(), (numbers[ids] * 0.5).half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_is_within_half_a_step(dtype: torch.dtype) -> None:
    values, matrix = quantized("int8", dtype)
    steps = values.abs().amax(1, keepdim=True) / 127
    assert ((unpacked(matrix) - values).abs() <= steps * 0.5001).all()


def test_int4_is_within_half_a_step_but_for_the_side_that_lacks_a_code() -> None:
    values, matrix = quantized("int4", torch.float32)
    groups = torch.nn.functional.pad(values, (0, -values.shape[1] % 128)).view(len(values), -1, 128)
    errors = torch.nn.functional.pad(unpacked(matrix) - values, (0, -values.shape[1] % 128)).view(groups.shape).abs()
    steps = groups.abs().amax(-1, keepdim=True) / 8
    is_cut_off = groups * groups.gather(-1, groups.abs().argmax(-1, keepdim=True)).sign() < -7.5 * steps * 0.999
    assert is_cut_off.any()
    assert (errors <= steps * torch.where(is_cut_off, 1.001, 0.502)).all()


def test_fp8_is_within_half_a_unit_of_its_last_place() -> None:
    values, matrix = quantized("fp8", torch.float32)
    smallest = values.abs().amax(1, keepdim=True) / 448 * 2.0**-10  # half of the smallest subnormal number
    assert ((unpacked(matrix) - values).abs() <= torch.maximum(values.abs() * 2.0**-4, smallest) * 1.0001).all()


@pytest.mark.parametrize("name", ["int8", "int4", "fp8"])
def test_rows_of_zeros_stay_zeros(name: str) -> None:
    matrix = allocate(name, (2, 128), DEVICE)
    quantize_rows(torch.zeros(2, 128, device=DEVICE), matrix, 0)
    assert not unpacked(matrix).any()


def test_every_fp8_code() -> None:
    matrix, _ = random_matrix("fp8", 1, 256, seed=0)
    matrix.codes[0] = torch.arange(256, dtype=torch.uint8)
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float() * matrix.scales.cpu()
    assert torch.equal(unpacked(matrix)[0].nan_to_num(1e9), numbers[0].nan_to_num(1e9))


def quantized(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, PackedMatrix]:
    values = torch.randn(9, 352, generator=torch.Generator().manual_seed(5)).to(dtype)
    matrix = allocate(name, (9, 352), DEVICE)
    quantize_rows(values.to(DEVICE), matrix, 0)
    assert torch.equal(scaled(matrix), unpacked(matrix))
    return values.float(), matrix
