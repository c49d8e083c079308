"""Where a step's arrays lie: any step within the limits fits into what is planned, and nothing overlaps."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.planning.cuda_step import ALIGNMENT, LEAST_QUERY_TILE, StepLayout, sent_words, table_width
from pagoda.planning.cuda_workspace import decode_rows


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_step_fits_and_its_arrays_are_apart(data: st.DataObject) -> None:
    max_tokens, max_seqs = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 40))
    num_blocks, width = data.draw(st.integers(1, 100)), data.draw(st.integers(1, 50))
    if data.draw(st.booleans()):
        rows = data.draw(st.sampled_from(decode_rows(max_tokens, max_seqs)))
        layout = StepLayout.of(rows, rows, rows, rows)
    else:
        seqs = data.draw(st.integers(1, min(max_tokens, max_seqs)))
        tokens = data.draw(st.integers(seqs, max_tokens))
        cuts = sorted(data.draw(st.lists(st.integers(0, tokens - seqs), min_size=seqs - 1, max_size=seqs - 1)))
        counts = np.diff([0, *cuts, tokens - seqs]) + 1
        tiles = int((-(-counts // LEAST_QUERY_TILE)).sum())
        layout = StepLayout.of(tokens, seqs, data.draw(st.integers(0, tokens)), tiles)

    begins = [
        (0, 1),
        (layout.input_ids, layout.num_tokens),
        (layout.positions, layout.num_tokens),
        (layout.slot_mapping, 2 * layout.num_tokens),
        (layout.query_start_loc, layout.num_seqs + 1),
        (layout.seq_lens, layout.num_seqs),
        (layout.logit_rows, layout.num_logits),
        (layout.query_tiles, 2 * layout.num_tiles),
        (layout.block_table, layout.num_seqs * width),
        (layout.new_blocks(width), num_blocks),
        (sent_words(num_blocks, width, max_tokens, max_seqs), 0),
    ]
    for (begin, size), (following, _) in itertools.pairwise(begins):
        assert begin + size <= following
        assert begin % ALIGNMENT == 0


def test_a_table_is_as_wide_as_the_longest_sequence_that_fits() -> None:
    assert table_width(num_blocks=100, block_size=16, context_length=33) == 3
    assert table_width(num_blocks=2, block_size=16, context_length=33) == 2
