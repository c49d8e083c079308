"""Attention where each request computes one token: RoPE, the writing of K and V, and attention in one kernel."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.attention import paged_attention
from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.rope import rope_and_store_kv
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import AttentionLayer


def decode_attention(
    qkv: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor] | None,
    step: CudaStep,
    kv: LayerKV,
    layer: AttentionLayer[CudaWeight],
    *,
    out: torch.Tensor,
    machine: Machine,
) -> None:
    """`rope_and_store_kv` and `paged_attention` of a step with one token of each request: qkv [S, …] → out [S, heads ×
    head_dim]. Nothing about the launch may depend on values of the step but on S, so that it can be captured."""
    q = torch.empty_like(out)
    rope_and_store_kv(qkv, angles, step, kv, layer, q=q)
    paged_attention(q, step, kv, layer.spec, out=out, machine=machine)
