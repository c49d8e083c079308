"""Weights for the torch reference: dense tensors on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pagoda.loading.checkpoint import StoredTensor
from pagoda.quantization import dequantize

_DENSE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class TorchWeight:
    """values: a gain or bias [n] in float32, or a matrix [out, in] in the model's dtype, with its bias [out] if it has one."""

    values: torch.Tensor
    bias: torch.Tensor | None = None


class TorchWeightOps:
    """`WeightOps` of the torch reference: every weight is dequantized to `dtype` on `device`.

    num_bytes: of all weights handed out so far.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.num_bytes = 0

    def vector(self, stored: StoredTensor) -> TorchWeight:
        # Norms are computed in float32, so their gains keep their full precision whatever the model's dtype.
        return TorchWeight(self._filled([stored], torch.float32).flatten())

    def table(self, stored: StoredTensor) -> TorchWeight:
        return TorchWeight(self._filled([stored], self.dtype))

    def head(self, stored: StoredTensor) -> TorchWeight:
        return self.table(stored)

    def linear(self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor] = ()) -> TorchWeight:
        bias = self._filled(biases, self.dtype).flatten() if biases else None
        return TorchWeight(self._filled(segments, self.dtype), bias)

    def _filled(self, segments: Sequence[StoredTensor], dtype: torch.dtype) -> torch.Tensor:
        """The segments stacked along their first dimension. Only one of them at a time exists twice in memory."""
        num_rows = sum(stored.info.shape[0] for stored in segments)
        result = torch.empty((num_rows, *segments[0].info.shape[1:]), dtype=dtype, device=self.device)
        self.num_bytes += result.nbytes
        start = 0
        for stored in segments:
            end = start + stored.info.shape[0]
            result[start:end].copy_(_dense(stored))
            start = end
        return result


def _dense(stored: StoredTensor) -> torch.Tensor:
    """The tensor in its own number format where it is dense, else dequantized to float32; on the CPU."""
    dtype = _DENSE.get(stored.info.format)
    if dtype is None:
        return torch.from_numpy(dequantize(stored)).reshape(stored.info.shape)
    # A copy, as torch refuses to promise anything about memory it must not write to (the mapped file).
    return torch.from_numpy(np.array(stored.data, order="C")).view(dtype).reshape(stored.info.shape)
