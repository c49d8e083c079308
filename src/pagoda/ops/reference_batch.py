"""One step's arrays on the device, with what all layers share worked out once.

Requests that compute about as many tokens over about as many keys form a group, padded to its largest, so that attention
is a few batched operations a layer whatever the number of requests. Padding never leaves its request: a padded query
repeats the request's last token, and a padded block is the request's last, so a neighbour's K and V are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from pagoda.ops.rope import inverse_frequencies
from pagoda.planning.model_spec import RopeSpec

Ints = npt.NDArray[Any]

# (requests of a group, queries and keys of the longest) → how many requests, and queries of each, attention takes at once.
Tile = Callable[[int, int, int], tuple[int, int]]

# Below these, sorting requests into finer groups costs more than padding them.
_SMALLEST_QUERY_BUCKET = 16
_SMALLEST_KEY_BUCKET = 256


class StepArrays(Protocol):
    """One step in numpy; `runner.batch.Batch` says what each array holds."""

    @property
    def input_ids(self) -> Ints: ...
    @property
    def positions(self) -> Ints: ...
    @property
    def slot_mapping(self) -> Ints: ...
    @property
    def query_start_loc(self) -> Ints: ...
    @property
    def seq_lens(self) -> Ints: ...
    @property
    def block_table(self) -> Ints: ...
    @property
    def logit_rows(self) -> Ints: ...
    @property
    def new_blocks(self) -> Ints: ...


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Requests whose attention is one batched operation: n of them, L queries and S keys each.

    token_rows [n × L]         the step's token behind each query
    query_positions [n, L]     its position
    blocks [n × S / block_size]  the cache blocks that hold the keys
    """

    num_requests: int
    query_len: int
    token_rows: torch.Tensor
    query_positions: torch.Tensor
    blocks: torch.Tensor
    num_keys: int
    _masks: dict[tuple[int | None, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """[n, 1, L, S], added to the scores: 0 where the query may see the key, -inf elsewhere. Made once per window."""
        if (window, dtype) not in self._masks:
            keys = torch.arange(self.num_keys, device=self.query_positions.device)
            queries = self.query_positions[:, None, :, None]
            hidden = keys > queries
            if window is not None:
                hidden |= keys <= queries - window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            self._masks[window, dtype] = mask.masked_fill_(hidden, float("-inf"))
        return self._masks[window, dtype]


@dataclass(frozen=True, slots=True)
class TorchBatch:
    """One step of T tokens. Tensors are int64 on the device.

    places [T]: where each token's attention output is among those of all groups, concatenated.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    logit_rows: torch.Tensor
    new_blocks: torch.Tensor
    groups: tuple[AttentionGroup, ...]
    places: torch.Tensor
    _rotations: dict[RopeSpec, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def rotation(self, rope: RopeSpec) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of each token's angles, [T, 1, dim / 2] in float32. Made once per RoPE."""
        if rope not in self._rotations:
            frequencies = torch.from_numpy(inverse_frequencies(rope)).to(self.positions.device)
            angles = self.positions[:, None, None].to(torch.float32) * frequencies
            self._rotations[rope] = (angles.cos(), angles.sin())
        return self._rotations[rope]


def whole_groups(num_requests: int, query_len: int, num_keys: int) -> tuple[int, int]:
    """A `Tile` that cuts nothing."""
    return num_requests, query_len


def torch_batch(
    arrays: StepArrays,
    block_size: int,
    device: torch.device,
    tile: Tile = whole_groups,
    *,
    widest_window: int | None = None,
) -> TorchBatch:
    """The step's arrays on the device, its requests sorted into groups, and those cut into tiles.

    widest_window: of all layers; None where some layer has none.
    """

    def on_device(values: Ints) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype=np.int64)).to(device, non_blocking=True)

    starts = arrays.query_start_loc[:-1].astype(np.int64)
    query_lens = np.diff(arrays.query_start_loc).astype(np.int64)
    num_blocks = -(-arrays.seq_lens.astype(np.int64) // block_size)
    groups: list[AttentionGroup] = []
    places = np.zeros(len(arrays.input_ids), dtype=np.int64)
    num_places = 0
    for members, queries in _tiles(query_lens, num_blocks * block_size, tile):
        lens, owned = query_lens[members], num_blocks[members]
        width = int(owned.max())
        token_rows = starts[members, None] + np.minimum(queries, lens[:, None] - 1)
        table = arrays.block_table[members, :width]
        # Blocks in front of every window may be another request's by now; behind the last there are none.
        seen = np.arange(width) < owned[:, None]
        if widest_window is not None:
            first_seen = arrays.positions[starts[members]].astype(np.int64) - widest_window + 1
            seen &= np.arange(width) >= (first_seen // block_size)[:, None]
        table = np.where(seen, table, table[np.arange(len(members)), owned - 1][:, None])
        real = queries < lens[:, None]
        places[token_rows[real]] = num_places + np.flatnonzero(real)
        num_places += real.size
        groups.append(
            AttentionGroup(
                num_requests=len(members),
                query_len=len(queries),
                token_rows=on_device(token_rows.reshape(-1)),
                query_positions=on_device(arrays.positions[token_rows]),
                blocks=on_device(table.reshape(-1)),
                num_keys=width * block_size,
            )
        )
    return TorchBatch(
        input_ids=on_device(arrays.input_ids),
        positions=on_device(arrays.positions),
        slot_mapping=on_device(arrays.slot_mapping),
        logit_rows=on_device(arrays.logit_rows),
        new_blocks=on_device(arrays.new_blocks),
        groups=tuple(groups),
        places=on_device(places),
    )


def _tiles(query_lens: Ints, key_lens: Ints, tile: Tile) -> Iterator[tuple[Ints, Ints]]:
    """Groups of similar requests, each cut as `tile` says: (indices of its requests, which of their queries)."""
    for group in _similar(query_lens, key_lens):
        rows, queries = tile(len(group), int(query_lens[group].max()), int(key_lens[group].max()))
        for first in range(0, len(group), rows):
            members = group[first : first + rows]
            query_len = int(query_lens[members].max())
            for start in range(0, query_len, queries):
                yield members, np.arange(start, min(start + queries, query_len))


def _similar(query_lens: Ints, key_lens: Ints) -> list[Ints]:
    """Indices of the requests with any queries, by buckets that double in size; single queries (decode) stay apart."""
    members: dict[tuple[int, int], list[int]] = {}
    for index, (queries, keys) in enumerate(zip(query_lens.tolist(), key_lens.tolist(), strict=True)):
        if queries:
            bucket = 1 if queries == 1 else _bucket(queries, _SMALLEST_QUERY_BUCKET)
            members.setdefault((bucket, _bucket(keys, _SMALLEST_KEY_BUCKET)), []).append(index)
    return [np.array(indices, dtype=np.int64) for indices in members.values()]


def _bucket(size: int, smallest: int) -> int:
    """The next power of two, but at least `smallest`."""
    return max(smallest, 1 << (size - 1).bit_length())
