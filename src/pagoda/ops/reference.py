"""The reference: each op in plain torch, on any device. This is what the ops mean; every kernel is tested against it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops import reference_attention
from pagoda.ops.interface import Activation, AttentionLayer
from pagoda.ops.reference_attention import rms_norm
from pagoda.ops.reference_batch import TorchBatch
from pagoda.ops.reference_cache import KVCache
from pagoda.ops.reference_weights import TorchWeight


class TorchOps:
    """`Ops` over torch tensors. Activations have the weights' dtype (float32, bfloat16 or float16); norms, softmax and
    RoPE are computed in float32. Attention writes to and reads from `cache`."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def embed(self, batch: TorchBatch, table: TorchWeight, scale: float = 1.0) -> torch.Tensor:
        rows = F.embedding(batch.input_ids, table.values)
        return rows if scale == 1.0 else rows * scale

    def embed_positions(self, batch: TorchBatch, table: TorchWeight) -> torch.Tensor:
        return F.embedding(batch.positions, table.values)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    def rms_norm(self, x: torch.Tensor, gain: TorchWeight, eps: float) -> torch.Tensor:
        return rms_norm(x, gain.values, eps)

    def add_rms_norm(
        self, x: torch.Tensor, y: torch.Tensor, gain: TorchWeight, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + y
        return total, rms_norm(total, gain.values, eps)

    def layer_norm(self, x: torch.Tensor, gain: TorchWeight, bias: TorchWeight, eps: float) -> torch.Tensor:
        return F.layer_norm(x.float(), x.shape[-1:], gain.values, bias.values, eps).to(x.dtype)

    def add_layer_norm(
        self, x: torch.Tensor, y: torch.Tensor, gain: TorchWeight, bias: TorchWeight, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + y
        return total, self.layer_norm(total, gain, bias, eps)

    def linear(self, x: torch.Tensor, weight: TorchWeight) -> torch.Tensor:
        return F.linear(x, weight.values, weight.bias)

    def rope_and_store_kv(
        self, batch: TorchBatch, qkv: torch.Tensor, layer: AttentionLayer[TorchWeight]
    ) -> torch.Tensor:
        return reference_attention.rope_and_store_kv(self.cache, batch, qkv, layer)

    def paged_attention(self, batch: TorchBatch, q: torch.Tensor, layer: AttentionLayer[TorchWeight]) -> torch.Tensor:
        return reference_attention.paged_attention(self.cache, batch, q, layer)

    def gated_activation(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return self.activation(gate, activation) * up

    def activation(self, x: torch.Tensor, activation: Activation) -> torch.Tensor:
        return F.silu(x) if activation == "silu" else F.gelu(x, approximate="tanh")

    def logits(self, batch: TorchBatch, x: torch.Tensor, head: TorchWeight) -> torch.Tensor:
        return F.linear(x.index_select(0, batch.logit_rows), head.values, head.bias).float()
