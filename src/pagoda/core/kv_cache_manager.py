"""KVCacheManager: each request's block table. The only one that allocates and frees KV blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter

from pagoda.core.block_pool import BlockPool
from pagoda.core.kv_interface import Text
from pagoda.core.prefix_cache import (
    NOTHING_FOUND,
    Miss,
    Namespace,
    Place,
    Prefix,
    PrefixCache,
    PrefixStats,
    depth_of,
)
from pagoda.core.step import RequestKey
from pagoda.errors import InvariantError


@dataclass(slots=True)
class _Held:
    """What one request holds.

    table: block ids; the first `num_passed` of them are not its own any more, and only keep the others in their places.
    place: where its text stands in the cache, `num_known` blocks in; None: its text is not to be found by others.
    promises: hashes of blocks of its prompt that it has not computed yet, the next one last.
    """

    table: list[int]
    place: Place | None = None
    num_known: int = 0
    promises: list[int] = field(default_factory=list)
    num_passed: int = 0

    @property
    def own(self) -> list[int]:
        return self.table[self.num_passed :] if self.num_passed else self.table


class KVCacheManager:
    """A `KVManager` with paged allocation: a request's blocks lie anywhere, and come one by one as it grows.

    With a prefix cache, full blocks outlive their requests: they lie among the free ones with what they hold, are taken back
    by whoever begins with the same text, and are overwritten when nothing else is free, the longest unused first. They are
    shared while their requests run.

    window: a token sees itself and so many minus one before it, in every layer. What no later token of a request will see
    it gives up as it grows: only `allocate` does that, so a prompt has all its blocks when it enters.
    """

    def __init__(
        self, num_blocks: int, block_size: int, cache: PrefixCache | None = None, window: int | None = None
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.cache = cache
        self.window = window
        self.prefix_stats = PrefixStats()
        self._held: dict[RequestKey, _Held] = {}
        self._promised: Counter[int] = Counter()

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def largest_allocation(self) -> int:
        """The most blocks that one request could be given now: any free block will do."""
        return self.pool.num_free

    @property
    def shares(self) -> bool:
        return self.cache is not None

    @property
    def num_cached_blocks(self) -> int:
        return 0 if self.cache is None else len(self.cache)

    @property
    def tables(self) -> Mapping[RequestKey, Sequence[int]]:
        """The blocks that each request holds, for looking at."""
        return {key: held.own for key, held in self._held.items()}

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold so many tokens of one request."""
        return -(-num_tokens // self.block_size)

    def block_table(self, key: RequestKey) -> tuple[int, ...]:
        """The request's blocks in order; empty when it has none."""
        held = self._held.get(key)
        return () if held is None else tuple(held.table)

    def num_passed(self, key: RequestKey) -> int:
        held = self._held.get(key)
        return 0 if held is None else held.num_passed

    def find_prefix(self, namespace: Namespace, token_ids: Sequence[int], known: Prefix) -> Prefix:
        if self.cache is None:
            return known
        end = len(token_ids) - 1
        # One in the middle may be gone though those behind it are not: who holds them may hold a block of its own there.
        blocks = tuple(takewhile(attrgetter("live"), known.blocks))
        place = blocks[-1] if blocks else namespace
        start = len(blocks) * self.block_size
        blocks += tuple(self.cache.find(place, token_ids, start, end))
        place, start = blocks[-1] if blocks else namespace, len(blocks) * self.block_size
        if start + self.block_size > end:
            return Prefix(blocks, None if blocks else Miss.TOO_SHORT)
        (following,) = self.cache.chain_hashes(place, token_ids, start, start + self.block_size)
        return Prefix(blocks, self.cache.why_missing(place, token_ids, start), following in self._promised)

    def can_admit(self, num_tokens: int, most_tokens: int, headroom: int, prefix: Prefix = NOTHING_FOUND) -> bool:
        """Only what it needs at once counts; the headroom stands for the growth of all."""
        shared = sum([self.pool.num_holders(block.block_id) > 0 for block in prefix.blocks])
        return self.blocks_for(num_tokens) - shared + headroom <= self.pool.num_free

    def admit(
        self, key: RequestKey, num_tokens: int, most_tokens: int, text: Text | None = None
    ) -> tuple[int, ...] | None:
        if key in self._held:
            raise InvariantError(f"request {key} was to be admitted, but has blocks already")
        prefix = NOTHING_FOUND if text is None else text.prefix
        if not self.can_admit(num_tokens, most_tokens, 0, prefix):
            return None
        shared = [block.block_id for block in prefix.blocks]
        for block_id in shared:
            self.pool.acquire(block_id)
        held = _Held([*shared, *self._take(self.blocks_for(num_tokens) - len(shared))])
        self._held[key] = held
        if self.cache is not None and text is not None:
            held.place, held.num_known = prefix.blocks[-1] if prefix.blocks else text.namespace, len(shared)
            start = len(shared) * self.block_size
            held.promises = self.cache.chain_hashes(held.place, text.token_ids, start, len(text.token_ids))[::-1]
            self._promised.update(held.promises)
            self._count(prefix, len(text.token_ids))
        return tuple(held.table)

    def allocate(self, key: RequestKey, num_tokens: int, num_computed: int = 0) -> tuple[int, ...] | None:
        """Make the request's table hold `num_tokens` in all. Returns the blocks appended to it, often none.

        None when there are not enough free blocks. What the first `num_computed` positions alone needed is given up first.
        """
        held = self._held.get(key)
        if self.window is not None and held is not None:
            self._pass(held, num_computed - self.window + 1)
        missing = -(-num_tokens // self.block_size) - (len(held.table) if held else 0)
        if missing <= 0:
            return ()
        if missing > self.pool.num_free:
            return None
        block_ids = self._take(missing)
        if held is None:
            self._held[key] = _Held(list(block_ids))
        else:
            held.table.extend(block_ids)
        return block_ids

    def commit(self, key: RequestKey, token_ids: Sequence[int], num_computed: int) -> tuple[int, ...]:
        held = self._held[key]
        if self.cache is None or held.place is None:
            return ()
        size, added = self.block_size, []
        for index in range(held.num_known, min(num_computed, len(token_ids)) // size):
            block_id = held.table[index]
            tokens = tuple(token_ids[index * size : (index + 1) * size])
            held.place = self.cache.insert(held.place, tokens, block_id)
            held.num_known = index + 1
            if held.promises:
                self._keep_promise(held.promises.pop())
            if held.place.block_id == block_id:
                added.append(block_id)
        return tuple(added)

    def forget_contents(self, block_ids: Iterable[int]) -> None:
        if self.cache is not None:
            for block_id in block_ids:
                self.cache.evict(block_id)

    def free(self, key: RequestKey) -> None:
        """The request gives up all its blocks. Raises `InvariantError` when it has none."""
        held = self._held.pop(key, None)
        if held is None:
            raise InvariantError(f"request {key} was to give up its blocks, but has none")
        for promise in held.promises:
            self._keep_promise(promise)
        cache = self.cache
        # Last block first: the beginning of a text is what others are most likely to share, so it is overwritten last.
        self.pool.release(reversed(held.own), None if cache is None else cache.holds)

    def reset(self) -> None:
        self.pool = BlockPool(self.num_blocks)
        self._held.clear()
        self._promised.clear()
        if self.cache is not None:
            self.cache.clear()

    def broken(self) -> Iterator[str]:
        yield from self.pool.broken([held.own for held in self._held.values()])
        promised = Counter(promise for held in self._held.values() for promise in held.promises)
        if promised != self._promised:
            yield f"{self._promised.total()} blocks count as promised, but the requests promise {promised.total()}"
        if self.cache is not None:
            yield from self.cache.broken()
            for key, held in self._held.items():
                if held.place is not None and depth_of(held.place) != held.num_known:
                    yield f"{key} stands {depth_of(held.place)} blocks into its text, but counts {held.num_known}"

    def _count(self, prefix: Prefix, num_tokens: int) -> None:
        self.prefix_stats.queried_tokens += num_tokens
        self.prefix_stats.hit_tokens += len(prefix.blocks) * self.block_size
        if prefix.miss is not None:
            self.prefix_stats.misses[prefix.miss] += 1

    def _pass(self, held: _Held, first_seen: int) -> None:
        """Give up the blocks of positions before `first_seen`, once the cache knows what is in them."""
        end = first_seen // self.block_size
        if self.cache is not None and held.place is not None:
            end = min(end, held.num_known)
        if end > held.num_passed:
            passed, held.num_passed = held.table[held.num_passed : end], end
            self.pool.release(passed, None if self.cache is None else self.cache.holds)

    def _take(self, count: int) -> tuple[int, ...]:
        block_ids = self.pool.allocate(count)
        self.forget_contents(block_ids)
        return block_ids

    def _keep_promise(self, promise: int) -> None:
        self._promised[promise] -= 1
        if not self._promised[promise]:
            del self._promised[promise]
