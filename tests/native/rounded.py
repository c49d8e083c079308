"""The torch reference with the one rounding that the native path has even for float32 weights: q, K and V in bf16, or K and
V as codes of 8 bits."""

from __future__ import annotations

import torch

from pagoda.ops.interface import AttentionLayer
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import TorchBatch
from pagoda.ops.reference_weights import TorchWeight
from tests.native.programs import kv_codes
from tests.parity.harness import Loaded, Steps


class RoundedOps(TorchOps):
    def rope_and_store_kv(
        self, batch: TorchBatch, qkv: torch.Tensor, layer: AttentionLayer[TorchWeight]
    ) -> torch.Tensor:
        q = super().rope_and_store_kv(batch, qkv, layer)
        for cached in (self.cache.keys[layer.index], self.cache.values[layer.index]):
            cached.copy_(cached.bfloat16())
        return q.bfloat16().float()


class CodedOps(TorchOps):
    def rope_and_store_kv(
        self, batch: TorchBatch, qkv: torch.Tensor, layer: AttentionLayer[TorchWeight]
    ) -> torch.Tensor:
        q = super().rope_and_store_kv(batch, qkv, layer)
        for cached in (self.cache.keys[layer.index], self.cache.values[layer.index]):
            codes, scales = kv_codes(cached.numpy())
            cached.copy_(torch.from_numpy(codes * scales[..., None]))
        return q


def rounded_steps(loaded: Loaded, sequences: list[list[int]], max_len: int, kv_dtype: str = "bfloat16") -> Steps:
    steps = Steps(loaded, sequences, max_len)
    steps.ops = {"bfloat16": RoundedOps, "int8": CodedOps}[kv_dtype](steps.cache)
    return steps
