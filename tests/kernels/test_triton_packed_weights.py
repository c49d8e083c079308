"""From stored tensors to weights on the device: which are kept quantized, which are joined, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.ops.cuda import weight_ops
from pagoda.ops.cuda.packed_embed import embed_packed
from pagoda.ops.cuda.weight_ops import CudaWeightOps
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix, PackedMatrix
from pagoda.planning.cuda_formats import packed_bytes
from pagoda.quantization import dequantize
from tests.parity.cuda import DEVICE
from tests.quantization.test_dequantize import random_tensor


def numbers_of(weight: CudaWeight) -> torch.Tensor:
    parts = []
    for matrix in weight.matrices:
        if isinstance(matrix, DenseMatrix):
            parts.append(matrix.values.float())
        else:
            out = torch.empty(matrix.shape, device=DEVICE)
            embed_packed(torch.arange(matrix.shape[0], device=DEVICE), matrix, 1.0, out)
            parts.append(out)
    return torch.cat(parts).cpu()


def formats_of(weight: CudaWeight) -> list[tuple[str, int]]:
    return [
        (matrix.format if isinstance(matrix, PackedMatrix) else "dense", matrix.shape[0]) for matrix in weight.matrices
    ]


def fp8(rows: int, columns: int, scales: np.ndarray, seed: int = 0) -> StoredTensor:
    by_block = scales.ndim == 2 and scales.shape != (rows, 1)
    codes = np.random.default_rng(seed).integers(0, 126, (rows, columns), np.uint8)
    info = TensorInfo("x", (rows, columns), "fp8_block" if by_block else "fp8", codes.size)
    scale = StoredTensor(TensorInfo("s", scales.shape, "F32", scales.nbytes), scales.reshape(1, -1).view(np.uint8))
    return StoredTensor(info, codes, scale)


def test_neighbours_of_one_format_are_one_matrix() -> None:
    formats = ("Q4_0", "Q4_0", "Q6_K", "BF16", "F32", "Q4_0")
    segments = [random_tensor(name, rows + 1, 256, seed=rows) for rows, name in enumerate(formats)]
    ops = CudaWeightOps(DEVICE, torch.float32)
    weight = ops.linear(segments)
    assert formats_of(weight) == [("Q4_0", 3), ("Q6_K", 3), ("dense", 9), ("Q4_0", 6)]
    assert weight.segments == (1, 2, 3, 4, 5, 6)
    assert torch.equal(numbers_of(weight), torch.from_numpy(np.concatenate([dequantize(one) for one in segments])))
    assert ops.num_bytes == packed_bytes("Q4_0", (9, 256)) + packed_bytes("Q6_K", (3, 256)) + 9 * 256 * 4


@pytest.mark.parametrize("scales", [(), (5,), (5, 1)])
def test_fp8_with_a_scale_for_all_or_for_each_output(scales: tuple[int, ...]) -> None:
    stored = fp8(5, 64, np.random.default_rng(1).random(scales, np.float32).astype(np.float32).reshape(scales))
    weight = CudaWeightOps(DEVICE, torch.float16).linear([stored, stored])
    assert formats_of(weight) == [("fp8", 10)]
    assert torch.equal(numbers_of(weight), torch.from_numpy(np.concatenate([dequantize(stored)] * 2)))


def test_blocks_of_fp8_begin_with_a_matrix() -> None:
    segments = [
        fp8(rows, 144, np.random.default_rng(rows).random((-(-rows // 128), 2), np.float32), seed=rows)
        for rows in (128, 3, 2)
    ]
    weight = CudaWeightOps(DEVICE, torch.float16).linear(segments)
    assert formats_of(weight) == [("fp8_block", 131), ("fp8_block", 2)]
    assert torch.equal(numbers_of(weight), torch.from_numpy(np.concatenate([dequantize(one) for one in segments])))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dense_matrices_are_rounded_once(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_ops, "SLICE_NUMBERS", 3 * 40)
    stored = random_tensor(name, 7, 40, seed=2) if name != "F16" else as_f16(random_tensor("F32", 7, 40, seed=2))
    ops = CudaWeightOps(DEVICE, dtype)
    weight = ops.linear([stored, stored], [stored])
    expected = torch.from_numpy(dequantize(stored)).to(dtype)
    (matrix,) = weight.matrices
    assert isinstance(matrix, DenseMatrix)
    assert torch.equal(matrix.values.cpu(), torch.cat([expected, expected]))
    assert weight.bias is not None
    assert torch.equal(weight.bias.cpu(), torch.from_numpy(dequantize(stored).reshape(-1)))
    assert ops.num_bytes == 2 * 7 * 40 * dtype.itemsize + 7 * 40 * 4


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
def test_what_is_quantized_while_loading(quantization: str) -> None:
    ops = CudaWeightOps(DEVICE, torch.bfloat16, quantization)
    dense, narrow = random_tensor("BF16", 4, 128, seed=3), random_tensor("BF16", 4, 20, seed=3)
    assert formats_of(ops.linear([dense])) == [(quantization, 4)]
    assert formats_of(ops.linear([narrow])) == [("dense", 4)]
    assert formats_of(ops.linear([random_tensor("Q5_1", 2, 128)])) == [("Q5_1", 2)]
    assert formats_of(ops.table(dense)) == formats_of(ops.head(dense)) == [("dense", 4)]
    assert formats_of(ops.table(random_tensor("Q8_0", 4, 128))) == [("Q8_0", 4)]


@pytest.mark.parametrize("name", ["Q4_1", "Q5_0", "Q6_K", "int4", "fp8"])
def test_packed_in_slices_with_an_odd_rest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = random_tensor(name if name[0] == "Q" else "F32", 7, 256, seed=4)
    ops = CudaWeightOps(DEVICE, torch.float32, None if name[0] == "Q" else name)
    (whole,) = ops.linear([stored]).matrices
    monkeypatch.setattr(weight_ops, "SLICE_NUMBERS", 3 * 256)
    (sliced,) = ops.linear([stored]).matrices
    assert isinstance(whole, PackedMatrix)
    assert isinstance(sliced, PackedMatrix)
    assert whole.format == name
    assert all(torch.equal(plane, sliced.planes[key]) for key, plane in whole.planes.items())


def as_f16(stored: StoredTensor) -> StoredTensor:
    data = dequantize(stored).astype(np.float16)
    return StoredTensor(TensorInfo("x", stored.info.shape, "F16", data.nbytes), data.view(np.uint8))
