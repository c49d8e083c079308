"""How weights come from a checkpoint to the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np
import torch

from pagoda.loading.checkpoint import StoredTensor
from pagoda.ops.cuda.packed_formats import allocate, quantize_rows, repack
from pagoda.ops.cuda.upload import Uploader
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix, Matrix, PackedMatrix
from pagoda.planning.cuda_formats import packed_format
from pagoda.planning.formats import FP8_BLOCK, FP8_FORMATS
from pagoda.quantization import dequantize, fp8_scales

# Numbers of a matrix that are on their way at a time: packing them takes a few times so many bytes on the device.
SLICE_NUMBERS = 1 << 24
_DENSE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class CudaWeightOps:
    """`WeightOps` of the GPU's path: vectors in float32; matrices that are stored quantized as they are, the others in the
    activations' format `dtype`, on `device`. Bytes go to the device as they lie in the file; what is to be done with them is
    done there.

    quantization: None or one of `CUDA_QUANTIZATIONS`, for what is stored dense; not for tables and heads.
    num_bytes: of all weights handed out so far.
    To be used in a `with`, which ends when the last weight is loaded and frees what loading took.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, quantization: str | None = None) -> None:
        self.device, self.dtype = device, dtype
        self.num_bytes = 0
        self._quantization, self._uploader = quantization, Uploader(device)

    def __enter__(self) -> CudaWeightOps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uploader.finish()
        if self.device.type == "cuda":  # torch keeps what loading took, in pieces that nothing later has the size of
            torch.cuda.empty_cache()

    def vector(self, stored: StoredTensor) -> CudaWeight:
        vector = self._floats([stored])
        self.num_bytes += vector.nbytes
        return CudaWeight(vector)

    def table(self, stored: StoredTensor) -> CudaWeight:
        return self._stacked([stored], (), None)

    def head(self, stored: StoredTensor) -> CudaWeight:
        return self._stacked([stored], (), None)

    def linear(self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor] = ()) -> CudaWeight:
        return self._stacked(segments, biases, self._quantization)

    def _stacked(
        self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor], quantization: str | None
    ) -> CudaWeight:
        matrices = tuple(self._matrix(name, group) for name, group in _joined(segments, quantization))
        bias = self._floats(biases) if biases else None
        self.num_bytes += sum(matrix.num_bytes for matrix in matrices) + (0 if bias is None else bias.nbytes)
        return CudaWeight(matrices=matrices, bias=bias, segments=tuple(stored.info.shape[0] for stored in segments))

    def _matrix(self, name: str | None, group: Sequence[StoredTensor]) -> Matrix:
        """The segments in one allocation, in that format; None: dense."""
        shape = (sum(stored.info.shape[0] for stored in group), group[0].info.shape[1])
        if name is None:
            dense = DenseMatrix(torch.empty(shape, dtype=self.dtype, device=self.device))
            for first, stored in _placed(group):
                self._copy(stored, dense.values[first : first + stored.info.shape[0]])
            return dense
        packed = allocate(name, shape, self.device)
        for first, stored in _placed(group):
            self._pack(stored, packed, first)
        return packed

    def _copy(self, stored: StoredTensor, target: torch.Tensor) -> None:
        source = _DENSE.get(stored.info.format)
        if source is None:  # rows that are not whole units of a packed format
            target.copy_(torch.from_numpy(dequantize(stored)))
            return
        if source is self.dtype:
            self._uploader.into(stored.data, target)
            return
        for first, raw in self._slices(stored):
            target[first : first + len(raw)].copy_(raw.view(source))

    def _pack(self, stored: StoredTensor, matrix: PackedMatrix, first: int) -> None:
        source = _DENSE.get(stored.info.format)
        for start, raw in self._slices(stored):
            if source is None:
                repack(raw, matrix, first + start)
            else:
                quantize_rows(raw.view(source), matrix, first + start)
        if stored.info.format in FP8_FORMATS:
            scales = fp8_scales(stored).reshape(-1, matrix.scales.shape[1])
            at = first // FP8_BLOCK if stored.info.format == "fp8_block" else first
            self._uploader.into(scales, matrix.scales[at : at + len(scales)])

    def _slices(self, stored: StoredTensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Rows as they are stored, on the device, uint8 [rows, bytes of a row], and which the first of them is."""
        num_rows, num_columns = stored.info.shape
        data, step = stored.data.reshape(num_rows, -1), max(1, SLICE_NUMBERS // num_columns)
        for first in range(0, num_rows, step):
            part = data[first : first + step]
            yield first, self._uploader.raw(part).view(part.shape)

    def _floats(self, vectors: Sequence[StoredTensor]) -> torch.Tensor:
        joined = np.concatenate([dequantize(stored).reshape(-1) for stored in vectors])
        return self._uploader.raw(joined).view(torch.float32)


def _joined(
    segments: Sequence[StoredTensor], quantization: str | None
) -> Iterator[tuple[str | None, list[StoredTensor]]]:
    """Neighbours that are held in one format, and that format. Blocks of fp8 begin with a matrix's first row, so what follows
    one whose rows are not whole blocks is a matrix of its own."""
    group: list[StoredTensor] = []
    held: str | None = None
    for stored in segments:
        kind = packed_format(stored.info.format, stored.info.shape[1], quantization)
        name = None if kind is None else kind.name
        is_cut = name == "fp8_block" and any(one.info.shape[0] % FP8_BLOCK for one in group)
        if group and (name != held or is_cut):
            yield held, group
            group = []
        held = name
        group.append(stored)
    yield held, group


def _placed(group: Sequence[StoredTensor]) -> Iterator[tuple[int, StoredTensor]]:
    """Each segment and its first row."""
    first = 0
    for stored in group:
        yield first, stored
        first += stored.info.shape[0]
