"""Random requests over a paged cache on the GPU (or in Triton's interpreter), for tests of attention.

Whatever a request may not read is NaN: blocks of others, slots that are not filled, blocks before its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pagoda.ops.cuda.cache import LayerKV
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.step import CudaStep, query_tiles
from pagoda.planning.model_spec import AttentionSpec
from tests.kernels import naive

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def machine_of(
    dtype: torch.dtype,
    *,
    is_deterministic: bool = False,
    multiprocessors: int = 4,
    capability: tuple[int, int] | None = None,
) -> Machine:
    machine = Machine.of(DEVICE, dtype, is_deterministic=is_deterministic)
    machine.partials.fill_(float("nan"))
    return replace(machine, multiprocessors=multiprocessors, capability=capability or machine.capability)


@dataclass(frozen=True, slots=True)
class Request:
    """q [n, heads × head_dim]; keys and values [n, kv_heads, head_dim], as the cache holds them."""

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def random(
        cls, spec: AttentionSpec, length: int, rng: np.random.Generator, dtype: torch.dtype, cache_dtype: torch.dtype
    ) -> Request:
        def drawn(*shape: int) -> torch.Tensor:
            return torch.from_numpy(rng.standard_normal(shape)).float()

        q = drawn(length, spec.num_heads * spec.head_dim).to(dtype)
        keys, values = (drawn(length, spec.num_kv_heads, spec.head_dim).to(cache_dtype) for _ in range(2))
        return cls(q, keys, values)

    @property
    def length(self) -> int:
        return len(self.keys)

    def expected(self, spec: AttentionSpec, begin: int, end: int) -> np.ndarray:
        """Attention of its tokens begin … end - 1, in float64: [end - begin, heads × head_dim]."""
        q, keys, values = (part.double().numpy() for part in (self.q, self.keys, self.values))
        q = q[begin:end].reshape(end - begin, spec.num_heads, spec.head_dim)
        result = naive.attention(q, keys, values, first=begin, scale=spec.scale, window=spec.window)
        return result.reshape(end - begin, -1)


# A request, and its tokens begin … end - 1, which the step computes.
Chunk = tuple[Request, int, int]


@dataclass(frozen=True, slots=True)
class Paged:
    """tables: of each request, its block ids. kv: on the device."""

    step: CudaStep
    kv: LayerKV
    tables: Sequence[np.ndarray]

    def stored(self, row: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V [kv_heads, head_dim] that the cache holds of a request's token."""
        block_size = self.kv.keys.shape[2]
        block = int(self.tables[row][position // block_size])
        key, value = (part[block, :, position % block_size].cpu() for part in self.kv)
        return key, value


def paged(
    spec: AttentionSpec, chunks: Sequence[Chunk], block_size: int, rng: np.random.Generator, *, has_new: bool = True
) -> Paged:
    """A step over these chunks. has_new: the cache holds K and V of the step's own tokens already."""
    owned = [-(-end // block_size) for _, _, end in chunks]
    ids = rng.permutation(sum(owned) + 1).astype(np.int32)
    foreign, tables = ids[0], np.split(ids[1:], np.cumsum(owned)[:-1])
    shape = (len(ids), spec.num_kv_heads, block_size, spec.head_dim)
    kv = LayerKV(*(torch.full(shape, float("nan")).to(chunks[0][0].keys.dtype) for _ in range(2)))
    block_table = np.full((len(chunks), max(owned) + 1), foreign, dtype=np.int32)
    for row, ((request, begin, end), table) in enumerate(zip(chunks, tables, strict=True)):
        for position in range(end if has_new else begin):
            where = int(table[position // block_size]), slice(None), position % block_size
            kv.keys[where], kv.values[where] = request.keys[position], request.values[position]
        first_seen = 0 if spec.window is None else max(0, begin - spec.window + 1)
        for block in table[: first_seen // block_size]:
            for part in kv:
                part[int(block)] = torch.full(part.shape[1:], float("nan")).to(part.dtype)
        seen = slice(first_seen // block_size, len(table))
        block_table[row, seen] = table[seen]

    counts = np.array([end - begin for _, begin, end in chunks])
    starts = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    seq_lens = np.array([end for _, _, end in chunks], dtype=np.int32)
    positions = np.concatenate([np.arange(begin, end) for _, begin, end in chunks])
    slots = np.concatenate(
        [
            table[np.arange(begin, end) // block_size] * block_size + np.arange(begin, end) % block_size
            for (_, begin, end), table in zip(chunks, tables, strict=True)
        ]
    )
    tiles, num_wide = query_tiles(starts, seq_lens)

    def on_device(values: np.ndarray, dtype: type = np.int32) -> torch.Tensor:
        return torch.from_numpy(values.astype(dtype)).to(DEVICE)

    step = CudaStep(
        input_ids=on_device(np.zeros(len(positions))),
        positions=on_device(positions),
        slot_mapping=on_device(slots, np.int64),
        query_start_loc=on_device(starts),
        seq_lens=on_device(seq_lens),
        block_table=on_device(block_table),
        logit_rows=on_device(np.zeros(0)),
        query_tiles=on_device(tiles),
        num_wide_tiles=num_wide,
        is_decode=bool((counts == 1).all()),
    )
    return Paged(step, LayerKV(kv.keys.to(DEVICE), kv.values.to(DEVICE)), tables)
