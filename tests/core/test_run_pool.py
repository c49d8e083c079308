"""RunPool: first fit, and gaps that grow together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.run_pool import RunPool
from pagoda.errors import InvariantError


def test_the_first_gap_that_is_long_enough_is_taken() -> None:
    pool = RunPool(20)
    runs = [pool.allocate(count) for count in (3, 5, 2, 7)]
    assert runs == [range(3), range(3, 8), range(8, 10), range(10, 17)]
    for run in (runs[0], runs[2]):
        assert run is not None
        pool.release(run)
    # Gaps of 3, 2 and 3 blocks.
    assert (pool.num_free, pool.largest_gap) == (8, 3)
    assert pool.allocate(4) is None
    assert pool.allocate(2) == range(2)
    assert pool.allocate(3) == range(17, 20)


@pytest.mark.parametrize("run", [range(0, 2), range(0, 4), range(1, 3), range(3, 5), range(0, 3, 1)[::-1]])
def test_only_a_run_that_was_handed_out_can_be_given_back(run: range) -> None:
    pool = RunPool(6)
    pool.allocate(3)
    with pytest.raises(InvariantError, match="no run that somebody holds"):
        pool.release(run)
    assert pool.num_free == 3


@given(num_blocks=st.integers(0, 24), data=st.data())
def test_it_does_what_a_search_through_all_blocks_does(num_blocks: int, data: st.DataObject) -> None:
    pool, free, runs = RunPool(num_blocks), [True] * num_blocks, list[range]()
    for _ in range(data.draw(st.integers(0, 20))):
        if runs and data.draw(st.booleans()):
            run = runs.pop(data.draw(st.integers(0, len(runs) - 1)))
            pool.release(run)
        else:
            count = data.draw(st.integers(1, 8))
            fits = [start for start in range(num_blocks - count + 1) if all(free[start : start + count])]
            taken = pool.allocate(count)
            assert taken == (range(fits[0], fits[0] + count) if fits else None)
            if taken is None:
                continue
            run = taken
            runs.append(run)
        for block_id in run:
            free[block_id] = not free[block_id]
        assert [pool.is_free(block_id) for block_id in range(-1, num_blocks + 1)] == [False, *free, False]
        assert pool.num_free == sum(free)
        stretches = "".join("f" if each else " " for each in free).split()
        assert pool.largest_gap == max(map(len, stretches), default=0)
