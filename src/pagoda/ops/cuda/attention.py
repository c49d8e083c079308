"""Attention over the paged cache, for steps in which requests compute any number of tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.step import CudaStep
from pagoda.planning.model_spec import AttentionSpec


def paged_attention(
    q: torch.Tensor,
    step: CudaStep,
    kv: LayerKV,
    spec: AttentionSpec,
    *,
    out: torch.Tensor,
    machine: Machine,
) -> None:
    """out [T, heads × head_dim]: causal attention of each token's q over its own request's K and V, read from the cache;
    with a window over the last `window` positions only. Softmax in float32.
    """
    keys, values = kv
    block_size = keys.shape[2]
    queries = q.view(q.shape[0], spec.num_heads, spec.head_dim)
    for request in range(step.num_seqs):
        start, end = (int(step.query_start_loc[request + offset]) for offset in (0, 1))
        length = int(step.seq_lens[request])
        table = step.block_table[request, : -(-length // block_size)].long()
        k, v = (
            part[table].transpose(1, 2).reshape(-1, spec.num_kv_heads, spec.head_dim)[:length].to(q.dtype)
            for part in (keys, values)
        )
        at, seen = step.positions[start:end, None], torch.arange(length, device=q.device)
        mask = seen <= at if spec.window is None else (seen <= at) & (seen > at - spec.window)
        out[start:end] = (
            F.scaled_dot_product_attention(
                queries[start:end].transpose(0, 1),
                k.transpose(0, 1),
                v.transpose(0, 1),
                mask,
                scale=spec.scale,
                enable_gqa=True,
            )
            .transpose(0, 1)
            .reshape(end - start, -1)
        )
