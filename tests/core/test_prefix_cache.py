"""The index of blocks by what they hold: found only after the same text, in the same namespace; never by a hash alone."""

from __future__ import annotations

import pytest

from pagoda.core.prefix_cache import CachedBlock, Miss, Namespace, Place, PrefixCache

HERE, THERE = Namespace("a"), Namespace("b")


def always_the_same(before: int, token_ids: tuple[int, ...]) -> int:
    return 7


def filled(cache: PrefixCache, namespace: Namespace, text: tuple[int, ...], first_block: int = 0) -> list[CachedBlock]:
    place: Place = namespace
    blocks = []
    for index in range(len(text) // cache.block_size):
        tokens = text[index * cache.block_size : (index + 1) * cache.block_size]
        place = cache.insert(place, tokens, first_block + index)
        blocks.append(place)
    return blocks


def found(cache: PrefixCache, namespace: Namespace, text: tuple[int, ...]) -> list[int]:
    return [block.block_id for block in cache.find(namespace, text, 0, len(text))]


def test_the_longest_beginning_in_whole_blocks_is_found() -> None:
    cache = PrefixCache(2)
    filled(cache, HERE, (1, 2, 3, 4, 5, 6))
    assert found(cache, HERE, (1, 2, 3, 4, 9, 9)) == [0, 1]
    assert found(cache, HERE, (1, 2, 3)) == [0]
    assert found(cache, HERE, (1,)) == found(cache, HERE, (2, 1)) == []


def test_the_same_tokens_elsewhere_in_a_text_are_not_found() -> None:
    cache = PrefixCache(1, always_the_same)
    filled(cache, HERE, (1,))
    (block,) = cache.find(HERE, (1,), 0, 1)
    assert cache.find(block, (1,), 0, 1) == []


def test_a_hash_that_is_always_the_same_never_finds_another_text() -> None:
    cache = PrefixCache(2, always_the_same)
    filled(cache, HERE, (1, 2))
    assert found(cache, HERE, (3, 4)) == []
    assert found(cache, THERE, (1, 2)) == []
    filled(cache, THERE, (1, 2), first_block=5)
    assert found(cache, THERE, (1, 2)) == [5]
    assert found(cache, HERE, (1, 2)) == []


def test_what_is_behind_an_overwritten_block_is_not_found_even_when_its_text_is_back() -> None:
    cache = PrefixCache(1)
    old = filled(cache, HERE, (1, 2))
    cache.evict(0)
    assert found(cache, HERE, (1, 2)) == []
    assert not old[0].live
    filled(cache, HERE, (1,), first_block=8)
    assert found(cache, HERE, (1, 2)) == [8]
    filled(cache, HERE, (1, 2), first_block=8)
    assert found(cache, HERE, (1, 2)) == [8, 9]


def test_a_text_held_twice_is_found_where_it_was_first() -> None:
    cache = PrefixCache(1)
    first = filled(cache, HERE, (1,))
    assert filled(cache, HERE, (1,), first_block=4) == first
    assert not cache.holds(4)
    cache.evict(4)
    assert found(cache, HERE, (1,)) == [0]


@pytest.mark.parametrize(
    ("namespace", "text", "miss"),
    [
        (HERE, (9, 9), Miss.NEW_TEXT),
        (HERE, (3, 4), Miss.EVICTED),
        (THERE, (1, 2), Miss.OTHER_TENANT),
        (Namespace("a", salt="x"), (1, 2), Miss.OTHER_TENANT),
        (HERE, (1,), Miss.TOO_SHORT),
    ],
)
def test_a_miss_has_its_reason(namespace: Namespace, text: tuple[int, ...], miss: Miss) -> None:
    cache = PrefixCache(2)
    filled(cache, HERE, (1, 2))
    filled(cache, HERE, (3, 4), first_block=1)
    cache.evict(1)
    assert found(cache, namespace, text) == []
    assert cache.why_missing(namespace, text, 0) is miss


def test_only_so_many_evicted_texts_are_remembered() -> None:
    cache = PrefixCache(1, num_remembered=2)
    for token in range(5):
        filled(cache, HERE, (token,), first_block=token)
        cache.evict(token)
    reasons = [cache.why_missing(HERE, (token,), 0) for token in range(5)]
    assert reasons == [Miss.NEW_TEXT] * 3 + [Miss.EVICTED] * 2
    assert len(cache) == 0
