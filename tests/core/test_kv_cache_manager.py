from __future__ import annotations

from collections.abc import Sequence

import pytest

from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import Text
from pagoda.core.prefix_cache import NOTHING_FOUND, SHARED, PrefixCache
from pagoda.core.step import RequestKey
from pagoda.errors import InvariantError

A, B = RequestKey("a", 0), RequestKey("b", 0)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_for(tokens: int, blocks: int) -> None:
    assert KVCacheManager(9, 4).blocks_for(tokens) == blocks


def test_a_table_grows_by_just_what_is_missing() -> None:
    kv = KVCacheManager(4, 4)
    first = kv.allocate(A, 5)
    assert first is not None
    assert len(first) == 2
    assert kv.allocate(A, 8) == ()
    second = kv.allocate(A, 9)
    assert second is not None
    assert kv.block_table(A) == first + second
    assert kv.num_free_blocks == 1


def test_too_few_blocks_change_nothing() -> None:
    kv = KVCacheManager(3, 4)
    kv.allocate(A, 8)
    assert kv.allocate(B, 5) is None
    assert kv.allocate(A, 17) is None
    assert kv.num_free_blocks == 1
    assert kv.block_table(B) == ()
    assert len(kv.block_table(A)) == 2


def test_free_gives_all_blocks_back_the_last_one_to_be_reused_first() -> None:
    kv = KVCacheManager(3, 4)
    table = kv.allocate(A, 12)
    assert table is not None
    kv.free(A)
    assert kv.num_free_blocks == 3
    assert kv.block_table(A) == ()
    assert kv.allocate(B, 12) == table[::-1]


def test_freeing_what_has_nothing_is_caught_at_once() -> None:
    kv = KVCacheManager(3, 4)
    kv.allocate(A, 1)
    kv.free(A)
    with pytest.raises(InvariantError, match="has none"):
        kv.free(A)


def test_a_block_that_was_overwritten_is_not_used_though_those_behind_it_are_still_there() -> None:
    kv = KVCacheManager(7, 4, PrefixCache(4))
    text = range(13)

    def enter(key: RequestKey, tokens: Sequence[int]) -> tuple[int, ...] | None:
        prefix = kv.find_prefix(SHARED, tokens, NOTHING_FOUND)
        return kv.admit(key, len(tokens), 13, Text(SHARED, tokens, prefix))

    # A and B begin alike and go on alike, each with a second block of its own, of which A's is the one that is found.
    assert enter(A, text[:5]) == (0, 1)
    kv.commit(A, text, 5)
    assert enter(B, text[:5]) == (0, 2)
    kv.commit(A, text, 8)
    kv.allocate(B, 13)
    kv.commit(B, text, 13)
    kv.free(A)
    known = kv.find_prefix(SHARED, text, NOTHING_FOUND)
    assert [block.block_id for block in known.blocks] == [0, 1, 3]
    assert enter(RequestKey("c", 0), range(30, 41)) == (5, 6, 1)
    assert [block.live for block in known.blocks] == [True, False, True]
    assert [block.block_id for block in kv.find_prefix(SHARED, text, known).blocks] == [0]
    assert list(kv.broken()) == []
