"""KVCacheManager: each request's block table. The only one that allocates and frees KV blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagoda.core.block_pool import BlockPool
from pagoda.core.step import RequestKey
from pagoda.errors import InvariantError


class KVCacheManager:
    """A `KVManager` with paged allocation: a request's blocks lie anywhere, and come one by one as it grows."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self._tables: dict[RequestKey, list[int]] = {}

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def largest_allocation(self) -> int:
        """The most blocks that one request could be given now: any free block will do."""
        return self.pool.num_free

    @property
    def tables(self) -> Mapping[RequestKey, Sequence[int]]:
        """All block tables, for looking at."""
        return self._tables

    def num_holders(self, block_id: int) -> int:
        return self.pool.num_holders(block_id)

    def is_free(self, block_id: int) -> bool:
        return self.pool.is_free(block_id)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold so many tokens of one request."""
        return -(-num_tokens // self.block_size)

    def block_table(self, key: RequestKey) -> tuple[int, ...]:
        """The request's blocks in order; empty when it has none."""
        return tuple(self._tables.get(key, ()))

    def can_admit(self, num_tokens: int, most_tokens: int, headroom: int) -> bool:
        """Only what it needs at once counts; the headroom stands for the growth of all."""
        return self.blocks_for(num_tokens) + headroom <= self.pool.num_free

    def admit(self, key: RequestKey, num_tokens: int, most_tokens: int) -> tuple[int, ...] | None:
        return self.allocate(key, num_tokens)

    def allocate(self, key: RequestKey, num_tokens: int) -> tuple[int, ...] | None:
        """Make the request's table hold `num_tokens` in all. Returns the blocks appended to it, often none.

        None when there are not enough free blocks; nothing is changed then.
        """
        table = self._tables.get(key)
        missing = -(-num_tokens // self.block_size) - (len(table) if table else 0)
        if missing <= 0:
            return ()
        if missing > self.pool.num_free:
            return None
        block_ids = self.pool.allocate(missing)
        if table is None:
            self._tables[key] = list(block_ids)
        else:
            table.extend(block_ids)
        return block_ids

    def free(self, key: RequestKey) -> None:
        """The request gives up all its blocks. Raises `InvariantError` when it has none."""
        table = self._tables.pop(key, None)
        if table is None:
            raise InvariantError(f"request {key} was to give up its blocks, but has none")
        # Last block first: the beginning of a text is what others are most likely to share, so it is overwritten last.
        self.pool.release(reversed(table))
