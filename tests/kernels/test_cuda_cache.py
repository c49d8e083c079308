"""The GPU's KV cache: whose parts are where, and that blocks are cleared in every layer, whatever its shape."""

from __future__ import annotations

import pytest
import torch

from pagoda.ops.cuda.cache import CudaKVCache, allocate_cuda_kv
from pagoda.ops.cuda.clear import BlockClearer
from pagoda.planning.model_spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec
from tests.kernels.gpu import DEVICE

BLOCKS, BLOCK_SIZE = 5, 4
# (heads, dim) of each layer's K and V: two kinds that take turns, and one with more elements in a block than a program clears.
SHAPES = ((2, 16), (1, 80), (2, 16), (1, 80), (16, 80), (2, 16))


def cache_of(dtype: torch.dtype, shapes: tuple[tuple[int, int], ...] = SHAPES) -> CudaKVCache:
    layers = tuple(
        LayerSpec(AttentionSpec(heads, heads, dim, 1.0, None), FeedForwardSpec(8, "silu", True))
        for heads, dim in shapes
    )
    spec = ModelSpec("llama", 8, 8, 8, 1e-5, True, layers, ())
    return allocate_cuda_kv(spec, BLOCKS, BLOCK_SIZE, DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn])
def test_layers_share_out_the_storage(dtype: torch.dtype) -> None:
    cache = cache_of(dtype)
    parts = [part for layer in cache.layers for part in layer]

    assert [part.shape for part in parts[::2]] == [(BLOCKS, heads, BLOCK_SIZE, dim) for heads, dim in SHAPES]
    assert cache.num_bytes == sum(part.nbytes for part in parts)
    for number, part in enumerate(parts):
        part.fill_(number)
    assert all((part.float() == number).all() for number, part in enumerate(parts))


@pytest.mark.parametrize("shapes", [SHAPES, SHAPES[:1], SHAPES[4:5], ((3, 5),)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_blocks_are_cleared_in_every_layer_and_no_others(
    dtype: torch.dtype, shapes: tuple[tuple[int, int], ...]
) -> None:
    cache = cache_of(dtype, shapes)
    cache.storage.fill_(float("nan"))
    clearer = BlockClearer(cache)

    clearer.clear(torch.tensor([], dtype=torch.int32, device=DEVICE))
    assert cache.storage.isnan().all()
    clearer.clear(torch.tensor([3, 0], dtype=torch.int32, device=DEVICE))

    for part in (part.float() for layer in cache.layers for part in layer):
        assert (part[[0, 3]] == 0).all()
        assert part[[1, 2, 4]].isnan().all()
