"""Paged attention on the GPU against the naive one in float64: tiles, windows, grouped queries, block sizes, formats."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from pagoda.ops.cuda.attention import paged_attention
from pagoda.planning.model_spec import AttentionSpec
from tests.kernels.paged import DEVICE, Chunk, Request, machine_of, paged

# Of results of ordinary size (V is standard normal), by the format of the activations.
BOUNDS = {torch.float32: 1e-5, torch.float16: 4e-3}


def spec_of(
    heads: int, kv_heads: int, dim: int, window: int | None = None, scale: float | None = None
) -> AttentionSpec:
    return AttentionSpec(heads, kv_heads, dim, dim**-0.5 if scale is None else scale, rope=None, window=window)


def attended(
    spec: AttentionSpec,
    chunks: list[Chunk],
    block_size: int,
    rng: np.random.Generator,
    *,
    is_deterministic: bool = False,
    capability: tuple[int, int] = (9, 0),
    multiprocessors: int = 4,
) -> list[torch.Tensor]:
    """Each chunk's results."""
    step = paged(spec, chunks, block_size, rng)
    q = torch.cat([request.q[begin:end] for request, begin, end in chunks]).to(DEVICE)
    out = torch.full_like(q, float("nan"))
    machine = machine_of(
        q.dtype, is_deterministic=is_deterministic, capability=capability, multiprocessors=multiprocessors
    )
    paged_attention(q, step.step, step.kv, spec, out=out, machine=machine)
    assert not machine.counters.any()
    return list(out.cpu().split([end - begin for _, begin, end in chunks]))


@pytest.mark.parametrize("is_deterministic", [False, True])
@pytest.mark.parametrize(
    ("spec", "block_size", "dtype"),
    [
        pytest.param(spec_of(2, 2, 32), 16, torch.float32, id="heads of their own"),
        pytest.param(spec_of(4, 2, 64), 16, torch.float16, id="grouped"),
        pytest.param(spec_of(7, 1, 80), 16, torch.float16, id="group of 7, dim 80"),
        pytest.param(spec_of(3, 1, 96), 1, torch.float16, id="group of 3, blocks of 1"),
        pytest.param(spec_of(2, 1, 8), 48, torch.float32, id="dim 8, blocks of 48"),
        pytest.param(spec_of(2, 2, 128, window=20), 16, torch.float16, id="small window"),
        pytest.param(spec_of(2, 1, 16, window=1), 8, torch.float32, id="window of 1"),
        pytest.param(spec_of(1, 1, 256, window=100), 512, torch.float16, id="dim 256, window over tiles"),
    ],
)
def test_mixed_steps(spec: AttentionSpec, block_size: int, dtype: torch.dtype, is_deterministic: bool) -> None:
    rng = np.random.default_rng()
    ranges = [(0, 140), (60, 61), (0, 1), (130, 133), (63, 66), (199, 200)]
    chunks = [(Request.random(spec, end, rng, dtype, dtype), begin, end) for begin, end in ranges]

    results = attended(spec, chunks, block_size, rng, is_deterministic=is_deterministic)

    for got, (request, begin, end) in zip(results, chunks, strict=True):
        np.testing.assert_allclose(got.numpy(), request.expected(spec, begin, end), rtol=0, atol=BOUNDS[dtype])


@pytest.mark.parametrize("capability", [(9, 0), (8, 0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_8_bit_caches(dtype: torch.dtype, capability: tuple[int, int]) -> None:
    rng = np.random.default_rng()
    spec = spec_of(2, 1, 64)
    ranges = [(0, 70), (199, 200)]
    chunks = [(Request.random(spec, end, rng, dtype, torch.float8_e4m3fn), begin, end) for begin, end in ranges]

    results = attended(spec, chunks, 16, rng, capability=capability)

    for got, (request, begin, end) in zip(results, chunks, strict=True):
        np.testing.assert_allclose(got.numpy(), request.expected(spec, begin, end), rtol=0, atol=BOUNDS[dtype])


def test_every_8_bit_number_is_read_as_it_is() -> None:
    """One key only, so the result is its value."""
    rng = np.random.default_rng()
    spec = spec_of(1, 1, 256)
    numbers = torch.arange(256, dtype=torch.uint8)
    numbers[(numbers & 0x7F) == 0x7F] = 0  # NaN
    values = numbers.view(torch.float8_e4m3fn).reshape(1, 1, 256)
    request = Request(torch.zeros(1, 256), torch.zeros_like(values), values)
    for capability in ((8, 0), (8, 9)):
        (got,) = attended(spec, [(request, 0, 1)], 16, rng, capability=capability)
        assert torch.equal(got, values.float().reshape(1, 256))


@pytest.mark.parametrize(
    ("spec", "dtype"), [(spec_of(2, 1, 32), torch.float16), (spec_of(1, 1, 32, window=50), torch.float32)]
)
def test_deterministic_results_do_not_depend_on_neighbours_or_chunks(spec: AttentionSpec, dtype: torch.dtype) -> None:
    rng = np.random.default_rng()
    request = Request.random(spec, 140, rng, dtype, dtype)
    others = [(Request.random(spec, end, rng, dtype, dtype), begin, end) for begin, end in ((3, 90), (9, 10), (0, 7))]

    def results(chunks: list[Chunk], at: int = 0, block_size: int = 16) -> torch.Tensor:
        return attended(spec, chunks, block_size, rng, is_deterministic=True)[at]

    alone = results([(request, 0, 140)])
    crowd = results([*others, (request, 0, 140)], at=3, block_size=32)
    cuts = [0, 1, 60, 64, 130, *range(137, 141)]
    chunked = torch.cat([results([others[1], (request, begin, end)], at=1) for begin, end in pairwise(cuts)])

    assert torch.equal(alone, crowd)
    assert torch.equal(alone, chunked)
