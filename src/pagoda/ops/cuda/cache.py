"""The paged KV cache on the GPU: K and V of a block and head lie together, so that a program reads them in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from pagoda.planning.model_spec import ModelSpec


class LayerKV(NamedTuple):
    """K and V of one layer, [num_blocks, num_kv_heads, block_size, head_dim] each, in the activations' format or
    float8_e4m3fn (what is beyond its range, ±448, is cut off)."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class CudaKVCache:
    """layers: parts of `storage`, one piece of memory."""

    block_size: int
    storage: torch.Tensor
    layers: Sequence[LayerKV]

    @property
    def num_bytes(self) -> int:
        return self.storage.nbytes


def allocate_cuda_kv(
    spec: ModelSpec, num_blocks: int, block_size: int, device: torch.device, dtype: torch.dtype
) -> CudaKVCache:
    """It takes num_blocks × block_size × (the sum over layers of 2 × num_kv_heads × head_dim) elements, and not one more.

    Its contents are undefined: a block is cleared before it is first used.
    """
    shapes = [
        (num_blocks, layer.attention.num_kv_heads, block_size, layer.attention.head_dim)
        for layer in spec.layers
        for _ in range(2)
    ]
    sizes = [blocks * heads * tokens * dim for blocks, heads, tokens, dim in shapes]
    storage = torch.empty(sum(sizes), dtype=dtype, device=device)
    parts = [part.view(shape) for part, shape in zip(torch.split(storage, sizes), shapes, strict=True)]
    return CudaKVCache(block_size, storage, [LayerKV(*pair) for pair in zip(parts[0::2], parts[1::2], strict=True)])
