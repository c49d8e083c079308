"""Attention over the paged cache, and what prepares it, in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops.interface import AttentionLayer
from pagoda.ops.reference_batch import AttentionGroup, TorchBatch
from pagoda.ops.reference_cache import KVCache
from pagoda.ops.reference_weights import TorchWeight
from pagoda.planning.model_spec import RopeSpec


def rms_norm(x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) × gain over the last dimension, in float32; the result in x's dtype."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * gain).to(x.dtype)


def rope_and_store_kv(
    cache: KVCache, batch: TorchBatch, qkv: torch.Tensor, layer: AttentionLayer[TorchWeight]
) -> torch.Tensor:
    """See `Ops.rope_and_store_kv`."""
    spec, num_tokens = layer.spec, qkv.shape[0]
    heads = qkv.view(num_tokens, -1, spec.head_dim)
    first_v = spec.num_heads + spec.num_kv_heads
    q, k, v = heads[:, : spec.num_heads], heads[:, spec.num_heads : first_v], heads[:, first_v:]
    if layer.q_norm is not None:
        q = rms_norm(q, layer.q_norm.values, layer.norm_eps)
    if layer.k_norm is not None:
        k = rms_norm(k, layer.k_norm.values, layer.norm_eps)
    if spec.rope is not None:
        q, k = rotated(q, batch, spec.rope), rotated(k, batch, spec.rope)
    cache.keys[layer.index].view(-1, spec.num_kv_heads, spec.head_dim).index_copy_(0, batch.slot_mapping, k)
    cache.values[layer.index].view(-1, spec.num_kv_heads, spec.head_dim).index_copy_(0, batch.slot_mapping, v)
    return q.reshape(num_tokens, -1)


def rotated(x: torch.Tensor, batch: TorchBatch, rope: RopeSpec) -> torch.Tensor:
    """x [T, heads, head_dim] with the first `rope.dim` elements of each head rotated, element i with i + dim / 2."""
    cosine, sine = batch.rotation(rope)
    half = rope.dim // 2
    wide = x.float()
    first, second, rest = wide[..., :half], wide[..., half : rope.dim], wide[..., rope.dim :]
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), dim=-1)
    return turned.to(x.dtype)


def paged_attention(
    cache: KVCache, batch: TorchBatch, q: torch.Tensor, layer: AttentionLayer[TorchWeight]
) -> torch.Tensor:
    """See `Ops.paged_attention`."""
    keys, values = cache.keys[layer.index], cache.values[layer.index]
    outputs = [_group_attention(group, q, keys, values, layer) for group in batch.groups]
    return torch.cat(outputs).index_select(0, batch.places)


def _group_attention(
    group: AttentionGroup,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    layer: AttentionLayer[TorchWeight],
) -> torch.Tensor:
    """Attention of one group's queries, padded ones included: [n × L, heads × head_dim]."""
    spec, n = layer.spec, group.num_requests

    def gathered(cached: torch.Tensor) -> torch.Tensor:  # [n, kv_heads, S, head_dim]
        blocks = cached.index_select(0, group.blocks)
        return blocks.view(n, group.num_keys, spec.num_kv_heads, spec.head_dim).transpose(1, 2)

    queries = q.index_select(0, group.token_rows)
    mask = group.mask(spec.window, q.dtype)
    if group.query_len == 1:
        # The heads that share K and V become queries of one head, which spares expanding the cache.
        folded = queries.view(n, spec.num_kv_heads, -1, spec.head_dim)
        output = F.scaled_dot_product_attention(folded, gathered(keys), gathered(values), mask, scale=spec.scale)
    else:
        heads = queries.view(n, group.query_len, spec.num_heads, spec.head_dim).transpose(1, 2)
        output = F.scaled_dot_product_attention(
            heads, gathered(keys), gathered(values), mask, scale=spec.scale, enable_gqa=True
        ).transpose(1, 2)
    return output.reshape(n * group.query_len, -1)
