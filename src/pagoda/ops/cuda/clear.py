"""Clearing KV blocks before their first use, so that what an earlier owner left (a NaN, say) cannot reach a new one."""

from __future__ import annotations

import math
from itertools import accumulate

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.cache import CudaKVCache

_ELEMENTS = 4096
# Zero has the same bits in every number format, so elements are told apart by their size alone.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}


class BlockClearer:
    """Clears blocks of a cache, in all layers, by one kernel."""

    def __init__(self, cache: CudaKVCache) -> None:
        parts = [part for layer in cache.layers for part in layer]
        begins = [0, *accumulate(part.numel() for part in parts)]
        sizes = [part[0].numel() for part in parts]
        self._storage = cache.storage.view(_BITS[cache.storage.itemsize])
        # [2 × layers]: where K or V of a layer begins, and how much of it is one block's, in elements.
        self._begins, self._sizes = (
            torch.tensor(numbers, dtype=torch.int64, device=cache.storage.device) for numbers in (begins[:-1], sizes)
        )
        self._largest = max(sizes)
        # What divides them all: with it the compiler stores 16 bytes a thread at once.
        self._multiple = math.gcd(16, *begins, *sizes)

    @property
    def num_bytes(self) -> int:
        return self._begins.nbytes + self._sizes.nbytes

    def clear(self, block_ids: torch.Tensor) -> None:
        """Blocks [N], int32 on the device."""
        elements = min(_ELEMENTS, triton.next_power_of_2(self._largest))
        grid = (block_ids.shape[0], self._sizes.shape[0])
        _clear[grid](self._storage, self._begins, self._sizes, block_ids, MULTIPLE=self._multiple, ELEMENTS=elements)


@triton.jit
def _clear(storage, begins, sizes, block_ids, MULTIPLE: tl.constexpr, ELEMENTS: tl.constexpr):
    block_id = tl.load(block_ids + tl.program_id(0)).to(tl.int64)
    part = tl.program_id(1)
    size = tl.multiple_of(tl.load(sizes + part), MULTIPLE)
    block = storage + tl.multiple_of(tl.load(begins + part), MULTIPLE) + block_id * size
    for first in range(0, size, ELEMENTS):
        element = first + tl.arange(0, ELEMENTS)
        tl.store(block + element, tl.zeros([ELEMENTS], storage.dtype.element_ty), mask=element < size)
