"""KVManager: what the scheduler asks of whoever allocates KV blocks, whatever the way in which they are allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pagoda.core.step import RequestKey


class KVManager(Protocol):
    """Position p of a request lies in block `block_table(key)[p // block_size]`, at offset p % block_size.

    The table of a request that has computed so many positions holds at least the blocks of all of them.
    """

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def num_free_blocks(self) -> int: ...

    @property
    def largest_allocation(self) -> int:
        """The most blocks that one request could be given now. Free blocks beyond it are of no use to it."""
        ...

    @property
    def tables(self) -> Mapping[RequestKey, Sequence[int]]:
        """All block tables, for looking at."""
        ...

    def num_holders(self, block_id: int) -> int:
        """How many hold this block; 0 when it is free."""
        ...

    def is_free(self, block_id: int) -> bool:
        """Whether the block is among those that may be handed out."""
        ...

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold so many tokens of one request."""
        ...

    def block_table(self, key: RequestKey) -> tuple[int, ...]:
        """The request's blocks in order; empty when it has none."""
        ...

    def can_admit(self, num_tokens: int, most_tokens: int, headroom: int) -> bool:
        """Whether a request that has no blocks yet can enter now.

        num_tokens: positions it needs at once. most_tokens: the most it can ever have. headroom: blocks that should
        remain free for those that run to grow.
        """
        ...

    def admit(self, key: RequestKey, num_tokens: int, most_tokens: int) -> tuple[int, ...] | None:
        """Give a request that has no blocks its first ones, which are returned. None when they are not there."""
        ...

    def allocate(self, key: RequestKey, num_tokens: int) -> tuple[int, ...] | None:
        """Make the request's table hold `num_tokens` in all. Returns the blocks appended to it, often none.

        None when there are not enough free blocks; nothing is changed then.
        """
        ...

    def free(self, key: RequestKey) -> None:
        """The request gives up all its blocks. Raises `InvariantError` when it has none."""
        ...
