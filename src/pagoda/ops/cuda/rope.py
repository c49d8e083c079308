"""RoPE, with the norms of q and k where a layer has them, and K and V written into the cache."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import AttentionLayer


def rope_and_store_kv(
    qkv: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor] | None,
    step: CudaStep,
    kv: LayerKV,
    layer: AttentionLayer[CudaWeight],
    *,
    q: torch.Tensor,
) -> None:
    """Split qkv [T, (heads + 2 kv_heads) × head_dim]; apply the layer's q/k norm and RoPE (halves paired, arXiv:2104.09864) in
    float32; write K and V to the step's slots of the cache, and q [T, heads × head_dim].

    angles: cosines and sines [T, dim / 2], float32; None: the layer has no RoPE.
    """
    spec, (keys, values) = layer.spec, kv
    heads = qkv.view(qkv.shape[0], -1, spec.head_dim).float()
    first_v = spec.num_heads + spec.num_kv_heads
    queries, k, v = heads[:, : spec.num_heads], heads[:, spec.num_heads : first_v], heads[:, first_v:]
    if layer.q_norm is not None and layer.k_norm is not None:
        queries, k = (
            wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + layer.norm_eps) * weight.values
            for wide, weight in ((queries, layer.q_norm), (k, layer.k_norm))
        )
    if angles is not None:
        queries, k = _turned(queries, *angles), _turned(k, *angles)
    block_size = keys.shape[2]
    blocks, offsets = step.slot_mapping // block_size, step.slot_mapping % block_size
    keys[blocks, :, offsets] = k.to(keys.dtype)
    values[blocks, :, offsets] = v.to(values.dtype)
    q.copy_(queries.reshape(q.shape))


def _turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    half = cosines.shape[-1]
    cosine, sine = cosines[:, None], sines[:, None]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), dim=-1)
