"""The torch reference with the one rounding that the native path has even for float32 weights: q, K and V in bf16."""

from __future__ import annotations

import torch

from pagoda.ops.interface import AttentionLayer
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import TorchBatch
from pagoda.ops.reference_weights import TorchWeight
from tests.parity.harness import Loaded, Steps


class RoundedOps(TorchOps):
    def rope_and_store_kv(
        self, batch: TorchBatch, qkv: torch.Tensor, layer: AttentionLayer[TorchWeight]
    ) -> torch.Tensor:
        q = super().rope_and_store_kv(batch, qkv, layer)
        for cached in (self.cache.keys[layer.index], self.cache.values[layer.index]):
            cached.copy_(cached.bfloat16())
        return q.bfloat16().float()


def rounded_steps(loaded: Loaded, sequences: list[list[int]], max_len: int) -> Steps:
    steps = Steps(loaded, sequences, max_len)
    steps.ops = RoundedOps(steps.cache)
    return steps
