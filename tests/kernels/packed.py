"""Random matrices in every format that the GPU keeps quantized, with what their numbers are."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.packed_formats import allocate, quantize_rows, repack
from pagoda.ops.cuda.weights import PackedMatrix
from pagoda.planning.cuda_formats import CUDA_FORMATS
from pagoda.quantization import dequantize
from tests.parity.cuda import DEVICE
from tests.quantization.test_dequantize import HALVES, random_tensor

OF_FILES = tuple(name for name in CUDA_FORMATS if name in HALVES)


def random_matrix(name: str, rows: int, columns: int, seed: int) -> tuple[PackedMatrix, torch.Tensor]:
    """The matrix, on the device, and its numbers, float32 [rows, columns] on the CPU."""
    matrix = allocate(name, (rows, columns), DEVICE)
    if name in OF_FILES:
        stored = random_tensor(name, rows, columns, seed)
        repack(torch.from_numpy(stored.data).to(DEVICE), matrix, 0)
        return matrix, torch.from_numpy(dequantize(stored))
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    if name == "fp8_block":
        matrix.codes.copy_((values * 100).to(torch.float8_e4m3fn).view(torch.uint8))
        matrix.scales.copy_(torch.rand(matrix.scales.shape, generator=generator) + 0.1)
    else:
        quantize_rows(values.to(DEVICE), matrix, 0)
    return matrix, scaled(matrix)


def scaled(matrix: PackedMatrix) -> torch.Tensor:
    """The numbers of int8, int4, fp8 and fp8_block, in plain torch."""
    rows, columns = matrix.shape
    stored, scales = matrix.codes.cpu(), matrix.scales.float().cpu()
    if matrix.format == "int4":
        words = stored.view(rows, -1, 1, 4)
        codes = ((words >> torch.arange(0, 32, 4)[:, None]) & 15).reshape(rows, columns).float() - 8
        return codes * scales.repeat_interleave(128, 1)[:, :columns]
    codes = stored.view(torch.int8 if matrix.format == "int8" else torch.float8_e4m3fn).float()
    if matrix.format == "fp8_block":
        scales = scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return codes * scales
