"""PrefixCache: which KV blocks hold which text, so that a text computed once need not be computed again.

A full block is known by its tokens and by the block before it, back to the namespace of whoever computed it: K and V of a
token depend on all tokens before it. The index finds a block by a hash over that chain, and nothing is taken for found
before the tokens themselves have been compared, link by link. So a collision of hashes costs a hit, never a wrong text.

The cache knows blocks, not who holds them: `BlockPool` counts holders and says what is overwritten next. Holders give up
their blocks last one first, so a block is overwritten before the one ahead of it in its chain, as a rule. Not where every
layer has a window, as a request gives up its first blocks while it runs; nor where two requests computed the same block, as
one of them may go on behind the other's without holding it. What lies behind a block that is gone is not found.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

TokenIds = tuple[int, ...]
Hash = Callable[[int, TokenIds], int]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Texts are shared only among requests that agree in all of this.

    tenant: who asks, as the server knows it and no client chooses. adapter: what changes the weights. salt: the client's own
    wish to be apart.
    """

    tenant: str = ""
    adapter: str = ""
    salt: str = ""


SHARED = Namespace()


class Miss(Enum):
    """Why the cache held no more of a text than it did."""

    NEW_TEXT = "new text"
    EVICTED = "evicted"
    OTHER_TENANT = "other tenant"
    TOO_SHORT = "too short"


class Prefix(NamedTuple):
    """The beginning of a text as the cache holds it. miss: why it holds no more; None where all that may be used is held.

    promised: what comes next is being computed by another request that runs.
    """

    blocks: tuple[CachedBlock, ...] = ()
    miss: Miss | None = None
    promised: bool = False


NOTHING_FOUND = Prefix()


@dataclass(slots=True)
class PrefixStats:
    """Sums over all requests that entered the batch: tokens of their texts, those of them that were found, and how many
    requests missed the rest for which reason."""

    queried_tokens: int = 0
    hit_tokens: int = 0
    misses: Counter[Miss] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class CachedBlock:
    """A full block and its place in a text. `parent`: the block before it, or the namespace its text belongs to.

    chain_hash: over namespace and all tokens up to here; text_hash: over the tokens alone. live: not overwritten yet.
    """

    block_id: int
    parent: CachedBlock | Namespace
    token_ids: TokenIds
    chain_hash: int
    text_hash: int
    live: bool = True


Place = CachedBlock | Namespace


def hash_of_tuple(before: int, token_ids: TokenIds) -> int:
    """Python's own hash of tuples: quick, and good enough where everything found is compared."""
    return hash((before, token_ids))


class PrefixCache:
    """The index. All methods take O(1) for each block they touch.

    hash_block: (hash of what comes before, tokens of the block) → hash. num_remembered: evicted blocks that are
    remembered, to tell why a text was not found.
    """

    def __init__(self, block_size: int, hash_block: Hash = hash_of_tuple, num_remembered: int = 8_192) -> None:
        self.block_size = block_size
        self._hash = hash_block
        self._index: dict[int, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}
        self._texts: Counter[int] = Counter()
        self._evicted: OrderedDict[int, None] = OrderedDict()
        self._num_remembered = num_remembered

    def __len__(self) -> int:
        return len(self._by_block)

    def holds(self, block_id: int) -> bool:
        """Whether the block's contents may be found."""
        return block_id in self._by_block

    def chain_hashes(self, after: Place, token_ids: Sequence[int], start: int, end: int) -> list[int]:
        """The hash of each whole block of token_ids[start:end], as it goes on after `after`."""
        size, before = self.block_size, self._chain_hash(after)
        hashes = []
        for first in range(start, end - size + 1, size):
            before = self._hash(before, tuple(token_ids[first : first + size]))
            hashes.append(before)
        return hashes

    def find(self, after: Place, token_ids: Sequence[int], start: int, end: int) -> list[CachedBlock]:
        """The blocks that hold token_ids[start:end] as it goes on after `after`: as many as there are, without a gap.

        start: of a block. Only whole blocks within the range count.
        """
        found: list[CachedBlock] = []
        size = self.block_size
        for first in range(start, end - size + 1, size):
            block = self._next(after, tuple(token_ids[first : first + size]))
            if block is None:
                break
            found.append(block)
            after = block
        return found

    def insert(self, after: Place, token_ids: TokenIds, block_id: int) -> CachedBlock:
        """The block now holds `token_ids` after `after`. Returns the place in the text, for the block that follows.

        Where another block holds the same already, that one stays the one that is found, and is returned.
        """
        known = self._next(after, token_ids)
        if known is not None:
            return known
        if isinstance(after, CachedBlock) and not after.live:
            # Nobody could find it behind a block that is gone, nor what follows it.
            return CachedBlock(block_id, after, token_ids, 0, 0, live=False)
        chain_hash, text_hash = self._hash(self._chain_hash(after), token_ids), self._hash(_text_hash(after), token_ids)
        block = CachedBlock(block_id, after, token_ids, chain_hash, text_hash)
        other = self._index.get(chain_hash)
        if other is not None:
            # Another text of the same hash, or the rest of one whose beginning is gone: the newer is likelier to be wanted.
            self._forget(other)
        self._index[chain_hash] = block
        self._by_block[block_id] = block
        self._texts[text_hash] += 1
        self._evicted.pop(chain_hash, None)
        return block

    def evict(self, block_id: int) -> None:
        """The block is about to be overwritten. Unknown ones are ignored."""
        block = self._by_block.get(block_id)
        if block is None:
            return
        self._forget(block)
        self._evicted[block.chain_hash] = None
        if len(self._evicted) > self._num_remembered:
            self._evicted.popitem(last=False)

    def why_missing(self, after: Place, token_ids: Sequence[int], start: int) -> Miss:
        """Why `find` found nothing at `start`, after `after`."""
        block = tuple(token_ids[start : start + self.block_size])
        if len(block) < self.block_size:
            return Miss.TOO_SHORT
        if self._hash(self._chain_hash(after), block) in self._evicted:
            return Miss.EVICTED
        if self._texts[self._hash(_text_hash(after), block)]:
            return Miss.OTHER_TENANT
        return Miss.NEW_TEXT

    def clear(self) -> None:
        """Forget every block."""
        for block in self._by_block.values():
            block.live = False
        self._index.clear()
        self._by_block.clear()
        self._texts.clear()

    def broken(self) -> Iterator[str]:
        """What is wrong: blocks must be found by what they hold and by their ids, and by nothing else; only those that live."""
        if len(self._index) != len(self._by_block):
            yield f"{len(self._index)} texts can be found, in {len(self._by_block)} blocks"
        for block_id, block in self._by_block.items():
            before, text_before = self._chain_hash(block.parent), _text_hash(block.parent)
            if block.block_id != block_id or not block.live or len(block.token_ids) != self.block_size:
                yield f"block {block_id} is known as {'' if block.live else 'an overwritten '}{block.block_id}"
            elif self._index.get(block.chain_hash) is not block or block.chain_hash in self._evicted:
                yield f"block {block_id} is kept, but not found"
            elif block.chain_hash != self._hash(before, block.token_ids):
                yield f"block {block_id} is found by another text than it holds"
            elif block.text_hash != self._hash(text_before, block.token_ids):
                yield f"block {block_id} counts for another text than it holds"
        if self._texts != Counter(block.text_hash for block in self._by_block.values()):
            yield "the texts that are counted are not those that are kept"

    def _next(self, after: Place, token_ids: TokenIds) -> CachedBlock | None:
        """The block of these tokens whose place is right after `after`, itself still there."""
        block = self._index.get(self._hash(self._chain_hash(after), token_ids))
        if block is None or block.token_ids != token_ids:
            return None
        if isinstance(after, Namespace):
            return block if block.parent == after else None
        return block if block.parent is after and after.live else None

    def _chain_hash(self, place: Place) -> int:
        return hash(place) if isinstance(place, Namespace) else place.chain_hash

    def _forget(self, block: CachedBlock) -> None:
        block.live = False
        del self._index[block.chain_hash]
        del self._by_block[block.block_id]
        self._texts[block.text_hash] -= 1
        if not self._texts[block.text_hash]:
            del self._texts[block.text_hash]


def depth_of(place: Place) -> int:
    """How many blocks of a text lie up to this place."""
    depth = 0
    while isinstance(place, CachedBlock):
        place, depth = place.parent, depth + 1
    return depth


def _text_hash(place: Place) -> int:
    return 0 if isinstance(place, Namespace) else place.text_hash
