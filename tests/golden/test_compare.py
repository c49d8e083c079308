"""The comparison with golden ids: what it counts, where it stops, what it says."""

from __future__ import annotations

import pytest

from tests.golden.compare import TIE, compare, summary

CLEAR = {"prompt": "clear", "token_ids": [5, 6, 7, 8], "margins": [1.0, 0.5, TIE, 2.0]}
TIED = {"prompt": "tied", "token_ids": [5, 6, 7, 8], "margins": [1.0, 0.5, TIE / 2, 2.0]}


def test_equal_ids_agree() -> None:
    found = compare(CLEAR, [5, 6, 7, 8])
    assert (found.num_compared, found.first_wrong, found.ends_in_tie) == (4, None, False)
    assert str(found) == "'clear': 4 of 4 ids compared"


@pytest.mark.parametrize(("token_ids", "place"), [([5, 6, 7, 9], 3), ([9, 6, 7, 8], 0), ([5, 6], 2), ([], 0)])
def test_a_different_or_missing_id_is_told(token_ids: list[int], place: int) -> None:
    found = compare(CLEAR, token_ids)
    assert found.first_wrong == place
    assert f"id {place} DIFFERS" in str(found)


def test_from_a_tie_on_nothing_is_compared_and_that_is_said() -> None:
    found = compare(TIED, [5, 6, 9, 9])
    assert (found.num_compared, found.first_wrong, found.ends_in_tie) == (2, None, True)
    assert "2 of 4 ids compared, up to a tie" in str(found)
    assert compare(TIED, [5, 9, 7, 8]).first_wrong == 1


def test_the_summary_counts_prompts_ids_and_ties() -> None:
    comparisons = [compare(CLEAR, [5, 6, 7, 8]), compare(CLEAR, [5]), compare(TIED, [5, 6, 7, 8])]
    assert summary(comparisons) == "2 of 3 prompts agree; 10 of 12 ids compared, prompts that end in a tie: 1"
