"""What finishes a step's arrays on the device, and what clears blocks."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import numpy as np
import torch

from pagoda.ops.cuda.cache import CudaKVCache, LayerKV
from pagoda.ops.cuda.clear import BlockClearer
from pagoda.ops.cuda.feed import feed

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(("num_seqs", "num_tokens", "sent", "width"), [(1, 1, 1, 1), (3, 600, 5, 9), (5, 5, 300, 700)])
def test_tokens_on_their_way_and_the_sent_part_of_the_table(
    num_seqs: int, num_tokens: int, sent: int, width: int
) -> None:
    generator = np.random.default_rng(num_tokens)
    ids = generator.integers(-8, 50, num_tokens).astype(np.int32)
    chosen = generator.integers(0, 50, 8).astype(np.int32)
    rows = generator.integers(0, 1000, (num_seqs, sent)).astype(np.int32)
    arrays = (ids, np.array([sent], np.int32), rows.reshape(-1), chosen)
    on_device = [torch.from_numpy(array.copy()).to(DEVICE) for array in arrays]
    table = torch.full((num_seqs, width), -7, dtype=torch.int32, device=DEVICE)
    feed(*on_device[:3], chosen=on_device[3], vocab_size=50, block_table=table)
    assert on_device[0].tolist() == np.where(ids < 0, chosen[np.maximum(-1 - ids, 0) % 8], ids).tolist()
    assert table[:, :sent].tolist() == rows.tolist()
    assert (table[:, sent:] == -7).all()


def test_no_token_outside_the_vocabulary_is_fed() -> None:
    ids = torch.tensor([-1, -2, 3], dtype=torch.int32, device=DEVICE)
    chosen = torch.tensor([50, -9], dtype=torch.int32, device=DEVICE)
    one = torch.ones(1, dtype=torch.int32, device=DEVICE)
    feed(ids, one, one, chosen=chosen, vocab_size=50, block_table=one.view(1, 1).clone())
    assert ids.tolist() == [49, 0, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_blocks_are_cleared_in_layers_of_any_size(dtype: torch.dtype) -> None:
    num_blocks, block_size, shapes = 5, 3, [(2, 80), (1, 7)]
    sizes = [num_blocks * heads * block_size * dim for heads, dim in shapes for _ in range(2)]
    storage = torch.ones(sum(sizes), device=DEVICE).to(dtype)
    parts = storage.split(sizes)
    layers = [
        LayerKV(*(part.view(num_blocks, heads, block_size, dim) for part in parts[2 * index : 2 * index + 2]))
        for index, (heads, dim) in enumerate(shapes)
    ]
    clearer = BlockClearer(CudaKVCache(block_size, storage, layers))
    clearer.clear(torch.tensor([4, 1], dtype=torch.int32, device=DEVICE))
    for part in (part for layer in layers for part in layer):
        assert part.float().amax(dim=(1, 2, 3)).tolist() == [1, 0, 1, 1, 0]
        assert part.float().amin(dim=(1, 2, 3)).tolist() == [1, 0, 1, 1, 0]
