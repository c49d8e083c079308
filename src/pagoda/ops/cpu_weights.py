"""Weights for the native path: vectors in float32, matrices packed from their stored bytes in the formats they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pagoda.errors import InvariantError
from pagoda.loading.checkpoint import StoredTensor
from pagoda.planning.formats import FP8_FORMATS, loaded_format, table_quantization
from pagoda.quantization import dequantize
from pagoda.quantization.fp8 import fp8_to_bf16
from pagoda.quantization.quantize import quantize

if TYPE_CHECKING:
    from pagoda._native import Matrix, Threads

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CpuWeight:
    """A gain or bias, float32 [n], or a packed matrix. segments: how many outputs each of its stacked matrices has."""

    held: Float32 | Matrix
    segments: tuple[int, ...] = ()

    @property
    def vector(self) -> Float32:
        if not isinstance(self.held, np.ndarray):
            raise InvariantError("a matrix stands where a vector is needed")
        return self.held

    @property
    def matrix(self) -> Matrix:
        if isinstance(self.held, np.ndarray):
            raise InvariantError("a vector stands where a matrix is needed")
        return self.held


class CpuWeightOps:
    """`WeightOps` of the native path.

    quantization: None, or "int8" or "int4": matrices that are stored dense are quantized per 32 inputs on the way, tables
    to 8 bits in both cases; what is stored quantized stays as it is, but for fp8, which becomes BF16 or is quantized from
    there.
    num_bytes: of all weights handed out so far.
    """

    def __init__(self, threads: Threads, quantization: str | None = None) -> None:
        self._threads, self._quantization = threads, quantization
        self.num_bytes = 0

    def vector(self, stored: StoredTensor) -> CpuWeight:
        values = dequantize(stored).reshape(-1)
        self.num_bytes += values.nbytes
        return CpuWeight(values)

    def table(self, stored: StoredTensor) -> CpuWeight:
        return self._packed([stored], (), table_quantization(self._quantization))

    def head(self, stored: StoredTensor) -> CpuWeight:
        return self.linear([stored])

    def linear(self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor] = ()) -> CpuWeight:
        return self._packed(segments, biases, self._quantization)

    def _packed(
        self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor], quantization: str | None
    ) -> CpuWeight:
        from pagoda._native import Matrix

        in_features = segments[0].info.shape[-1]
        bias = np.concatenate([dequantize(stored).reshape(-1) for stored in biases]) if biases else None
        rows = [self._rows(stored, quantization) for stored in segments]
        matrix = Matrix(self._threads, in_features, rows, bias)
        self.num_bytes += matrix.num_bytes
        return CpuWeight(matrix, tuple(stored.info.shape[0] for stored in segments))

    def _rows(self, stored: StoredTensor, quantization: str | None) -> tuple[str, npt.NDArray[np.uint8]]:
        """The format that the matrix is held in, and its rows in that format."""
        wanted = loaded_format(stored.info.format, stored.info.shape[-1], quantization)
        if stored.info.format in FP8_FORMATS:
            stored = fp8_to_bf16(stored)
        if wanted != stored.info.format:
            stored = quantize(stored, wanted, self._threads.count)
        return wanted, np.ascontiguousarray(stored.data)
