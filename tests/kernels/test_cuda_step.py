"""How the tokens of a step are cut into tiles for attention."""

from __future__ import annotations

import numpy as np

from pagoda.ops.cuda.step import QUERY_TILE, query_tiles


def test_every_token_is_in_one_tile_of_its_request_and_single_ones_come_last() -> None:
    counts = np.array([1, QUERY_TILE, 0, 2 * QUERY_TILE + 1, 1, 5])
    starts = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    seq_lens = (counts + np.array([40, 0, 7, 3, 90, 2000])).astype(np.int32)

    tiles, num_wide = query_tiles(starts, seq_lens)

    seen = np.concatenate(
        [np.arange(first, min(first + QUERY_TILE, starts[request + 1])) for request, first in tiles.tolist()]
    )
    assert sorted(seen.tolist()) == list(range(int(counts.sum())))
    assert all(starts[request] <= first < starts[request + 1] for request, first in tiles.tolist())
    assert tiles[num_wide:].tolist() == [[4, int(starts[4])], [0, 0]]
    # Most keys first: request 5 has 2,005 of them.
    assert tiles[:num_wide, 0].tolist() == [5, 3, 3, 3, 1]
    assert tiles[1:4, 1].tolist() == [int(starts[3]) + QUERY_TILE * tile for tile in (2, 1, 0)]
