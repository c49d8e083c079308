"""RoPE, q/k norm and what is written into the cache, against float64; and nothing else in the cache is touched."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.rope import rope_and_store_kv
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import AttentionLayer
from pagoda.planning.model_spec import AttentionSpec, RopeSpec
from tests.kernels.gpu import DEVICE, Guarded, assert_near, random

BLOCKS, EPS = 5, 1e-6


@dataclass(frozen=True)
class Case:
    heads: int
    kv_heads: int
    head_dim: int
    turned: int
    has_norm: bool = False
    num_tokens: int = 7
    block_size: int = 4
    dtype: torch.dtype = torch.float32
    cache: torch.dtype | None = None

    @property
    def layer(self) -> AttentionLayer[CudaWeight]:
        rope = RopeSpec(self.turned, 10_000.0) if self.turned else None
        gains = [CudaWeight(random(self.head_dim)) if self.has_norm else None for _ in range(2)]
        return AttentionLayer(0, AttentionSpec(self.heads, self.kv_heads, self.head_dim, 1.0, rope), *gains, EPS)


CASES = {
    "one token": Case(4, 4, 16, 16, num_tokens=1),
    "grouped": Case(8, 2, 64, 64),
    "nine heads": Case(9, 3, 64, 64),
    "head of 80": Case(4, 2, 80, 80),
    "partial": Case(4, 2, 80, 20),
    "odd head": Case(3, 1, 15, 6),
    "no rope": Case(2, 2, 24, 0),
    "wide head": Case(2, 1, 256, 256),
    "normed": Case(8, 2, 128, 128, has_norm=True),
    "normed, partial": Case(4, 2, 48, 32, has_norm=True),
    "normed, no rope": Case(4, 2, 48, 0, has_norm=True),
    "one head of many": Case(5, 1, 32, 32, num_tokens=18),
    "float16": Case(4, 2, 64, 64, has_norm=True, dtype=torch.float16),
    "bfloat16": Case(4, 2, 64, 64, has_norm=True, dtype=torch.bfloat16),
    "cache of 8 bits": Case(4, 2, 64, 64, dtype=torch.float16, cache=torch.float8_e4m3fn),
    "cache of 8 bits, odd head": Case(3, 1, 15, 6, dtype=torch.bfloat16, cache=torch.float8_e4m3fn),
}


def wanted_heads(
    heads: torch.Tensor, gain: CudaWeight | None, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """heads [T, n, head_dim] in float64."""
    if gain is not None:
        heads = heads / (heads.square().mean(-1, keepdim=True) + EPS).sqrt() * gain.values.double()
    turned, half = heads.clone(), cosines.shape[1]
    for i in range(half):  # each pair is a complex number
        pair = torch.complex(heads[:, :, i], heads[:, :, i + half])
        pair = pair * torch.complex(cosines[:, i].double(), sines[:, i].double())[:, None]
        turned[:, :, i], turned[:, :, i + half] = pair.real, pair.imag
    return turned


def run(case: Case, qkv: torch.Tensor) -> tuple[Any, ...]:
    """Q, both parts of the cache [BLOCKS × block_size, kv_heads, head_dim] and what each should be, and the unused slots."""
    layer, cache_dtype = case.layer, case.cache or case.dtype
    shape = (BLOCKS, case.kv_heads, case.block_size, case.head_dim)
    before = random(2, *shape).to(cache_dtype)
    kv = LayerKV(before[0].clone(), before[1].clone())
    slots = torch.randperm(BLOCKS * case.block_size)[: case.num_tokens].to(DEVICE)
    angles = random(case.num_tokens, case.turned // 2)
    q = Guarded(case.num_tokens, case.heads * case.head_dim, dtype=case.dtype)
    step: Any = SimpleNamespace(slot_mapping=slots)

    rope_and_store_kv(qkv, (angles.cos(), angles.sin()) if case.turned else None, step, kv, layer, q=q.values)

    parts = qkv.double().view(case.num_tokens, -1, case.head_dim).split((case.heads, case.kv_heads, case.kv_heads), 1)
    queries, keys = (
        wanted_heads(part, gain, angles.cos(), angles.sin())
        for part, gain in zip(parts[:2], (layer.q_norm, layer.k_norm), strict=True)
    )
    assert_near(q.check(), queries.reshape(case.num_tokens, -1))
    rows = [part.transpose(1, 2).reshape(-1, case.kv_heads, case.head_dim) for part in (*kv, *before)]
    unused = torch.from_numpy(np.setdiff1d(np.arange(BLOCKS * case.block_size), slots.cpu().numpy())).to(DEVICE)
    for now, then in zip(rows[:2], rows[2:], strict=True):
        assert torch.equal(now[unused].float(), then[unused].float())
    return rows[0][slots], keys, rows[1][slots], parts[2]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cache is None])
def test_q_turned_and_k_and_v_stored(name: str) -> None:
    case = CASES[name]
    qkv = random(case.num_tokens, (case.heads + 2 * case.kv_heads) * case.head_dim, dtype=case.dtype)

    keys, wanted_keys, values, wanted_values = run(case, qkv)

    assert_near(keys, wanted_keys)
    assert torch.equal(values.double(), wanted_values)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.cache is not None])
def test_a_cache_of_8_bits_cuts_off_what_is_beyond_its_range(name: str) -> None:
    case = CASES[name]
    qkv = 400 * random(case.num_tokens, (case.heads + 2 * case.kv_heads) * case.head_dim, dtype=case.dtype)

    keys, wanted_keys, values, wanted_values = run(case, qkv)

    assert (wanted_values.abs() > 448).any()
    assert torch.equal(values.float(), wanted_values.float().clamp(-448, 448).to(torch.float8_e4m3fn).float())
    # A rounding: half of the last of 3 bits, and of a number near a middle the other neighbour.
    wanted = wanted_keys.clamp(-448, 448)
    assert ((keys.double() - wanted).abs() <= 0.0626 * wanted.abs() + 2**-9).all()
    assert keys.float().abs().max() == 448


def test_a_token_is_the_same_whatever_is_beside_it() -> None:
    case = CASES["normed"]
    layer, shape = case.layer, (BLOCKS, case.kv_heads, case.block_size, case.head_dim)
    qkv, angles = random(7, 12 * 128, dtype=torch.float16), random(7, 64)
    together, alone = random(7, 8 * 128, dtype=torch.float16), random(1, 8 * 128, dtype=torch.float16)
    caches = [LayerKV(*torch.zeros((2, *shape), dtype=torch.float16, device=DEVICE)) for _ in range(2)]
    slots = torch.arange(7, device=DEVICE)
    for rows, kv, q in ((slice(0, 7), caches[0], together), (slice(4, 5), caches[1], alone)):
        step: Any = SimpleNamespace(slot_mapping=slots[rows])
        rope_and_store_kv(qkv[rows], (angles.cos()[rows], angles.sin()[rows]), step, kv, layer, q=q)

    assert torch.equal(together[4:5], alone)
    for many, one in zip(*caches, strict=True):
        assert torch.equal(many[1, :, 0], one[1, :, 0])
        assert one[1, :, 0].any()
