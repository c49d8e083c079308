"""ContiguousKVCacheManager: each request reserves one run of consecutive KV blocks for all that it may ever need.

This is how engines allocated before paging (Kwon et al., arXiv:2309.06180, section 3), kept for comparison: a request holds
its whole reservation from the first step to the last, and enters only where one gap is long enough for it. Kernels see
an ordinary block table, whose ids happen to be consecutive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pagoda.core.kv_interface import Text
from pagoda.core.prefix_cache import NOTHING_FOUND, Namespace, Prefix, PrefixStats
from pagoda.core.run_pool import RunPool
from pagoda.core.step import RequestKey
from pagoda.errors import InvariantError


class ContiguousKVCacheManager:
    """A `KVManager`. Once admitted, a request lacks nothing, so nobody is ever preempted."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.pool = RunPool(num_blocks)
        self.window = None
        self.prefix_stats = PrefixStats()
        self._tables: dict[RequestKey, range] = {}

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def num_cached_blocks(self) -> int:
        return 0

    @property
    def shares(self) -> bool:
        """Blocks of a run belong together, to one request."""
        return False

    @property
    def largest_allocation(self) -> int:
        return self.pool.largest_gap

    @property
    def tables(self) -> Mapping[RequestKey, Sequence[int]]:
        return self._tables

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def block_table(self, key: RequestKey) -> tuple[int, ...]:
        return tuple(self._tables.get(key, ()))

    def num_passed(self, key: RequestKey) -> int:
        """A run stays whole until its end."""
        return 0

    def find_prefix(self, namespace: Namespace, token_ids: Sequence[int], known: Prefix) -> Prefix:
        return known

    def commit(self, key: RequestKey, token_ids: Sequence[int], num_computed: int) -> tuple[int, ...]:
        return ()

    def forget_contents(self, block_ids: Iterable[int]) -> None:
        """Nobody would have found them."""

    def can_admit(self, num_tokens: int, most_tokens: int, headroom: int, prefix: Prefix = NOTHING_FOUND) -> bool:
        """Headroom is of no concern: whoever runs has all that it can ever need."""
        return self.blocks_for(most_tokens) <= self.pool.largest_gap

    def admit(
        self, key: RequestKey, num_tokens: int, most_tokens: int, text: Text | None = None
    ) -> tuple[int, ...] | None:
        if key in self._tables:
            raise InvariantError(f"request {key} was to be admitted, but has blocks already")
        run = self.pool.allocate(self.blocks_for(most_tokens))
        if run is None:
            return None
        self._tables[key] = run
        return tuple(run)

    def allocate(self, key: RequestKey, num_tokens: int, num_computed: int = 0) -> tuple[int, ...] | None:
        """Nothing to add, ever. Raises `InvariantError` for more than was reserved."""
        reserved = len(self._tables.get(key, ()))
        if self.blocks_for(num_tokens) > reserved:
            raise InvariantError(f"request {key} needs blocks for {num_tokens} tokens, but has reserved {reserved}")
        return ()

    def free(self, key: RequestKey) -> None:
        run = self._tables.pop(key, None)
        if run is None:
            raise InvariantError(f"request {key} was to give up its blocks, but has none")
        self.pool.release(run)

    def reset(self) -> None:
        self.pool = RunPool(self.num_blocks)
        self._tables.clear()

    def broken(self) -> Iterator[str]:
        yield from self.pool.broken(self._tables.values())
