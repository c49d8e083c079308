from __future__ import annotations

import pytest

from pagoda.core.block_pool import BlockPool
from pagoda.errors import InvariantError


def test_hands_out_each_block_once() -> None:
    pool = BlockPool(5)
    blocks = pool.allocate(2) + pool.allocate(3)
    assert sorted(blocks) == [0, 1, 2, 3, 4]
    assert pool.num_free == 0


def test_takes_the_block_that_has_been_free_for_longest() -> None:
    pool = BlockPool(3)
    first, second, third = pool.allocate(3)
    pool.release([second])
    pool.release([third, first])
    assert pool.allocate(3) == (second, third, first)


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.acquire(block)
    pool.release([block])
    assert (pool.num_free, pool.num_holders(block), pool.is_free(block)) == (0, 1, False)
    pool.release([block])
    assert (pool.num_free, pool.num_holders(block), pool.is_free(block)) == (1, 0, True)


def test_a_free_block_can_be_taken_back_from_the_middle() -> None:
    pool = BlockPool(3)
    pool.acquire(1)
    assert pool.allocate(2) == (0, 2)


def test_allocating_nothing_changes_nothing() -> None:
    pool = BlockPool(1)
    assert pool.allocate(0) == ()
    assert pool.num_free == 1


def test_releasing_twice_is_caught_at_once() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(InvariantError, match="block 0 was released, but nobody held it"):
        pool.release(blocks)


@pytest.mark.parametrize("block", [-1, 2])
def test_a_block_that_does_not_exist_is_caught_at_once(block: int) -> None:
    pool = BlockPool(2)
    pool.allocate(2)
    with pytest.raises(InvariantError, match="does not exist"):
        pool.release([block])
    with pytest.raises(InvariantError, match="does not exist"):
        pool.acquire(block)


def test_more_than_is_free_cannot_be_taken() -> None:
    pool = BlockPool(2)
    with pytest.raises(InvariantError, match="3 blocks were to be allocated, but only 2 are free"):
        pool.allocate(3)
    assert pool.num_free == 2
