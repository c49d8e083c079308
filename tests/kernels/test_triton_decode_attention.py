"""Decode attention in one kernel against RoPE, q/k norm and attention in float64: what it stores and what it attends to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from pagoda.ops.cuda.decode_attention import decode_attention
from pagoda.ops.cuda.weights import CudaWeight
from pagoda.ops.interface import AttentionLayer
from pagoda.planning.model_spec import AttentionSpec, RopeSpec
from tests.kernels import naive
from tests.kernels.paged import DEVICE, Request, machine_of, paged

BOUNDS = {torch.float32: 1e-5, torch.float16: 4e-3}
EPS = 1e-6


def spec_of(
    heads: int, kv_heads: int, dim: int, *, turned: int = 0, window: int | None = None, norm: bool = False
) -> AttentionSpec:
    rope = RopeSpec(turned, 10_000.0) if turned else None
    return AttentionSpec(heads, kv_heads, dim, dim**-0.5, rope, window=window, qk_norm=norm)


@pytest.mark.parametrize("multiprocessors", [1, 132])  # no splits, and many
@pytest.mark.parametrize(
    ("spec", "block_size", "dtype", "cache_dtype"),
    [
        pytest.param(spec_of(2, 2, 64, turned=64), 16, torch.float16, torch.float16, id="heads of their own"),
        pytest.param(spec_of(4, 2, 32, turned=32), 16, torch.float32, torch.float32, id="grouped"),
        pytest.param(
            spec_of(14, 2, 80, turned=20), 32, torch.float16, torch.float16, id="group of 7, a quarter turned"
        ),
        pytest.param(spec_of(2, 1, 128, turned=128, norm=True), 16, torch.float16, torch.float16, id="q/k norm"),
        pytest.param(spec_of(3, 1, 8), 1, torch.float32, torch.float32, id="no RoPE, dim 8, blocks of 1"),
        pytest.param(spec_of(2, 2, 96, turned=96, window=70), 48, torch.float16, torch.float16, id="window"),
        pytest.param(spec_of(2, 1, 32, turned=32, window=1), 16, torch.float32, torch.float32, id="window of 1"),
        pytest.param(spec_of(71, 1, 64, turned=64), 16, torch.float16, torch.float16, id="group of 71"),
        pytest.param(spec_of(2, 1, 64, turned=64, norm=True), 16, torch.float32, torch.float8_e4m3fn, id="8 bits"),
        pytest.param(spec_of(4, 1, 128, turned=64), 16, torch.float16, torch.float8_e4m3fn, id="8 bits, float16"),
    ],
)
def test_single_tokens(
    spec: AttentionSpec, block_size: int, dtype: torch.dtype, cache_dtype: torch.dtype, multiprocessors: int
) -> None:
    rng = np.random.default_rng()
    lengths = [1, 700, 64, 65, 131]
    requests = [Request.random(spec, length, rng, dtype, cache_dtype) for length in lengths]
    step = paged(spec, [(each, each.length - 1, each.length) for each in requests], block_size, rng, has_new=False)
    heads = spec.num_heads + 2 * spec.num_kv_heads
    qkv = torch.from_numpy(rng.standard_normal((len(lengths), heads * spec.head_dim))).to(dtype)
    gains = [torch.from_numpy(rng.standard_normal(spec.head_dim)).float() for _ in range(2)]
    q_norm, k_norm = (CudaWeight(gain.to(DEVICE)) for gain in gains) if spec.qk_norm else (None, None)
    layer = AttentionLayer(0, spec, q_norm, k_norm, EPS)
    out = torch.full((len(lengths), spec.num_heads * spec.head_dim), float("nan"), dtype=dtype, device=DEVICE)
    machine = machine_of(dtype, multiprocessors=multiprocessors)

    decode_attention(qkv.to(DEVICE), angles(spec, lengths), step.step, step.kv, layer, out=out, machine=machine)

    assert not machine.counters.any()
    for row, request in enumerate(requests):
        position = request.length - 1
        every = qkv[row].double().numpy().reshape(heads, spec.head_dim)
        q, k, v = np.split(every, [spec.num_heads, spec.num_heads + spec.num_kv_heads])
        if spec.qk_norm:
            q, k = (naive.rms_norm(x, gain.double().numpy(), EPS) for x, gain in zip((q, k), gains, strict=True))
        if spec.rope:
            q, k = (np.array([naive.rotated(head, position, spec.rope) for head in x]) for x in (q, k))
        stored = step.stored(row, position)
        for got, want in zip(stored, (k, v), strict=True):
            spacing = 2.0**-3 if cache_dtype == torch.float8_e4m3fn else BOUNDS[dtype]
            np.testing.assert_allclose(got.double().numpy(), want, rtol=spacing, atol=spacing / 64)
        # The token itself is attended to as it is stored.
        keys, values = (
            torch.cat([before[:-1], new[None]]).double().numpy()
            for before, new in zip((request.keys, request.values), stored, strict=True)
        )
        expected = naive.attention(q[None], keys, values, first=position, scale=spec.scale, window=spec.window)
        np.testing.assert_allclose(out[row].cpu().numpy(), expected.reshape(-1), rtol=0, atol=BOUNDS[dtype])


def angles(spec: AttentionSpec, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor] | None:
    if spec.rope is None:
        return None
    frequencies = spec.rope.base ** (-2 * np.arange(spec.rope.dim // 2) / spec.rope.dim)
    turned = (np.array(lengths) - 1)[:, None] * frequencies
    cosines, sines = (torch.from_numpy(part).float().to(DEVICE) for part in (np.cos(turned), np.sin(turned)))
    return cosines, sines
