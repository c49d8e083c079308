"""How weights come from a checkpoint to the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pagoda.loading.checkpoint import StoredTensor
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix
from pagoda.quantization import dequantize


class CudaWeightOps:
    """`WeightOps` of the GPU's path: vectors in float32, matrices in the activations' format `dtype` on `device`.

    num_bytes: of all weights handed out so far.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.num_bytes = 0

    def vector(self, stored: StoredTensor) -> CudaWeight:
        vector = torch.from_numpy(np.array(dequantize(stored), np.float32).reshape(-1)).to(self.device)
        self.num_bytes += vector.nbytes
        return CudaWeight(vector)

    def table(self, stored: StoredTensor) -> CudaWeight:
        return self.linear([stored])

    def linear(self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor] = ()) -> CudaWeight:
        values = torch.cat([torch.from_numpy(dequantize(stored)).reshape(stored.info.shape) for stored in segments])
        matrix = DenseMatrix(values.to(self.device, self.dtype))
        bias = None
        if biases:
            joined = np.concatenate([dequantize(stored).reshape(-1) for stored in biases])
            bias = torch.from_numpy(joined).to(self.device)
        self.num_bytes += matrix.num_bytes + (0 if bias is None else bias.nbytes)
        return CudaWeight(matrices=(matrix,), bias=bias, segments=tuple(stored.info.shape[0] for stored in segments))
