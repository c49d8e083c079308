"""KVManager: what the scheduler asks of whoever allocates KV blocks, whatever the way in which they are allocated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from pagoda.core.prefix_cache import NOTHING_FOUND, Namespace, Prefix, PrefixStats
from pagoda.core.step import RequestKey


class Text(NamedTuple):
    """What a request enters with: its tokens so far, with whom it shares their K and V, and what of it was found."""

    namespace: Namespace
    token_ids: Sequence[int]
    prefix: Prefix = NOTHING_FOUND


class KVManager(Protocol):
    """Position p of a request lies in block `block_table(key)[p // block_size]`, at offset p % block_size.

    The table of a request that has computed so many positions holds at least the blocks of all of them.
    """

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks that may be handed out, those included that still hold what somebody may ask for again."""
        ...

    @property
    def num_cached_blocks(self) -> int:
        """Blocks whose contents may be found, in use or free."""
        ...

    @property
    def shares(self) -> bool:
        """Whether there is a prefix cache. Without one nothing is ever found, and `commit` need not be called."""
        ...

    @property
    def prefix_stats(self) -> PrefixStats: ...

    @property
    def window(self) -> int | None:
        """How many tokens a token sees, itself included, where requests give up what they will not see again; else None."""
        ...

    @property
    def largest_allocation(self) -> int:
        """The most blocks that one request could be given now. Free blocks beyond it are of no use to it."""
        ...

    @property
    def tables(self) -> Mapping[RequestKey, Sequence[int]]:
        """The blocks that each request holds, for looking at: its block table, less what it has passed."""
        ...

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold so many tokens of one request."""
        ...

    def block_table(self, key: RequestKey) -> tuple[int, ...]:
        """The request's blocks in order; empty when it has none."""
        ...

    def num_passed(self, key: RequestKey) -> int:
        """How many blocks at the beginning of its table the request has given up, since no later token of it sees them.
        Their ids stay in the table, so that the others keep their places; nobody may read them."""
        ...

    def find_prefix(self, namespace: Namespace, token_ids: Sequence[int], known: Prefix) -> Prefix:
        """How much of a text is there. Its last token never counts: something must be computed to sample from.

        known: what was found the last time, so that only what has changed since is looked at.
        """
        ...

    def can_admit(self, num_tokens: int, most_tokens: int, headroom: int, prefix: Prefix = NOTHING_FOUND) -> bool:
        """Whether a request that has no blocks yet can enter now.

        num_tokens: positions it needs at once. most_tokens: the most it can ever have. headroom: blocks that should
        remain free for those that run to grow. prefix: what of its text is there.
        """
        ...

    def admit(
        self, key: RequestKey, num_tokens: int, most_tokens: int, text: Text | None = None
    ) -> tuple[int, ...] | None:
        """Give a request that has no blocks its first ones, which are returned, those of `text.prefix` first. None when
        they are not there. text: None: nobody is to find it.
        """
        ...

    def commit(self, key: RequestKey, token_ids: Sequence[int], num_computed: int) -> tuple[int, ...]:
        """The request has computed so many positions of its text, or will have when the step being made is done: their
        full blocks can be found from now on. Returns the blocks that were not known before.
        """
        ...

    def forget_contents(self, block_ids: Iterable[int]) -> None:
        """What these blocks were to hold never came to be."""
        ...

    def allocate(self, key: RequestKey, num_tokens: int, num_computed: int = 0) -> tuple[int, ...] | None:
        """Make the request's table hold `num_tokens` in all. Returns the blocks appended to it, often none.

        None when there are not enough free blocks. What the first `num_computed` positions alone needed may be given up,
        in any case: positions computed from now on come after them.
        """
        ...

    def free(self, key: RequestKey) -> None:
        """The request gives up all its blocks. Raises `InvariantError` when it has none."""
        ...

    def reset(self) -> None:
        """All blocks are free, and nothing can be found in them. Only for when no request runs."""
        ...

    def broken(self) -> Iterator[str]:
        """What is wrong in its books, if anything: each block must be free, or held by just the tables that list it."""
        ...
