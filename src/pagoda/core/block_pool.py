"""BlockPool: which KV blocks are free, and how many holders each of the others has."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from pagoda.errors import InvariantError


class BlockPool:
    """Blocks 0 … num_blocks - 1. Taking and giving back a block is O(1).

    The free blocks are ordered by when they became free: `allocate` takes the one that has been free for longest. Any
    free block can leave the order in O(1) (`acquire`), so blocks whose contents are worth keeping can lie here
    unreferenced, be taken back when they are needed again, and be overwritten least recently used first.

    Every misuse is a bug of the caller and raises `InvariantError` at once, before it can mix up two requests' text.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._holders = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_holders(self, block_id: int) -> int:
        """How many hold this block; 0 when it is free."""
        self._known(block_id)
        return self._holders[block_id]

    def is_free(self, block_id: int) -> bool:
        """Whether the block is among those that `allocate` may hand out."""
        return block_id in self._free

    def allocate(self, count: int) -> tuple[int, ...]:
        """`count` free blocks, each with one holder now. The caller makes sure that there are so many."""
        if count > len(self._free):
            raise InvariantError(f"{count:,} blocks were to be allocated, but only {len(self._free):,} are free")
        take = self._free.popitem
        block_ids = tuple([take(last=False)[0] for _ in range(count)])
        for block_id in block_ids:
            self._holders[block_id] = 1
        return block_ids

    def acquire(self, block_id: int) -> None:
        """One more holder of this block, whether it is in use or free."""
        self._known(block_id)
        if self._holders[block_id] == 0:
            del self._free[block_id]
        self._holders[block_id] += 1

    def release(self, block_ids: Iterable[int], worth_keeping: Callable[[int], bool] | None = None) -> None:
        """One holder less of each block; those without any become free, in this order.

        worth_keeping: which of them are; the others are the next to be handed out.
        """
        holders, free = self._holders, self._free
        for block_id in block_ids:
            self._known(block_id)
            if holders[block_id] == 0:
                raise InvariantError(f"block {block_id} was released, but nobody held it")
            holders[block_id] -= 1
            if holders[block_id] == 0:
                free[block_id] = None
                if worth_keeping is not None and not worth_keeping(block_id):
                    free.move_to_end(block_id, last=False)

    def broken(self, tables: Iterable[Sequence[int]]) -> Iterator[str]:
        """What is wrong: each block must have as many holders as tables list it, once each, and be free if that is none."""
        listed = [0] * self.num_blocks
        for table in tables:
            if len(set(table)) != len(table):
                yield f"a table lists a block twice: {table}"
            for block_id in table:
                listed[block_id] += 1
        # Whole lists are compared first, which takes a hundredth of the time of looking at each block.
        holders, free = self._holders, self._free
        if listed != holders:
            for block_id, (held, times) in enumerate(zip(holders, listed, strict=True)):
                if held != times:
                    yield f"block {block_id} counts {held} holders, but {times} tables list it"
        if len(free) != holders.count(0) or any(map(holders.__getitem__, free)):
            for block_id, held in enumerate(holders):
                if (block_id in free) != (held == 0):
                    yield f"block {block_id} has {held} holders and is {'' if block_id in free else 'not '}free"

    def _known(self, block_id: int) -> None:
        if not 0 <= block_id < self.num_blocks:
            raise InvariantError(f"block {block_id} does not exist; there are {self.num_blocks:,}")
