"""The paged KV cache as torch tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pagoda.planning.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class KVCache:
    """K and V of every layer: keys[i] and values[i] are [num_blocks, block_size, num_kv_heads, head_dim] of layer i."""

    block_size: int
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    def zero_blocks(self, block_ids: torch.Tensor) -> None:
        """Clear blocks before their first use, so that what an earlier owner left (a NaN, say) cannot reach a new one.

        block_ids: [N], int64, on the cache's device.
        """
        if block_ids.numel():
            for tensor in (*self.keys, *self.values):
                tensor.index_fill_(0, block_ids, 0)


def allocate_kv(spec: ModelSpec, num_blocks: int, block_size: int, device: torch.device, dtype: torch.dtype) -> KVCache:
    """A cache of `num_blocks` blocks for the model. Its contents are undefined: a block is cleared when it is first used,
    so that memory no request has needed yet is not touched, and the operating system need not provide it.

    It takes num_blocks × block_size × (the sum over layers of 2 × num_kv_heads × head_dim) elements.
    """

    def tensors() -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.empty(
                (num_blocks, block_size, layer.attention.num_kv_heads, layer.attention.head_dim),
                dtype=dtype,
                device=device,
            )
            for layer in spec.layers
        )

    return KVCache(block_size, tensors(), tensors())
