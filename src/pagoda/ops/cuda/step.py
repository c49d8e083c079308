"""CudaStep: one step's arrays on the device, as the kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True)
class CudaStep:
    """T tokens of S requests, concatenated. Tensors are int32 on the device, slot_mapping is int64; each is contiguous, begins
    at a multiple of 16 bytes, and in a decode step lies where it lay in the last one with as many rows: a captured graph
    finds it there.

    A decode step is padded with rows to one of a few sizes. They are rows like any other, of one token at position 0 of a
    request of one token, seq_lens 1, in a block that is kept for them beyond those that requests get (`SPARE_BLOCKS`): kernels
    do nothing about them, and what several of them write to the same place nobody reads.

    input_ids [T]            token ids
    positions [T]            position of each token in its own request
    slot_mapping [T]         where its K and V go: block id × block size + offset
    query_start_loc [S + 1]  request s has tokens query_start_loc[s] … query_start_loc[s + 1] - 1
    seq_lens [S]             tokens of request s in the cache once this step has written its own
    block_table [S, B]       block ids of request s in order; B is the same in every step
    logit_rows [R]           which of the T tokens get logits, ascending
    query_tiles [N, 2]       the T tokens by request, `QUERY_TILE` at most at once: (request, first of them in the step);
                             see `query_tiles`
    num_wide_tiles: the first so many tiles have more than one token; the others are requests that compute just one.
    is_decode: each request computes exactly one token and gets logits, so T = S = R, and logit_rows are 0 … R - 1.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    logit_rows: torch.Tensor
    query_tiles: torch.Tensor
    num_wide_tiles: int
    is_decode: bool

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_seqs(self) -> int:
        return self.seq_lens.shape[0]


# As many rows as attention's largest tile has, so that one head's tile is full; heads that share K and V fill several.
QUERY_TILE = 128


def query_tiles(
    query_start_loc: npt.NDArray[np.int32], seq_lens: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], int]:
    """`CudaStep.query_tiles` [N, 2] and `num_wide_tiles` of a step with these starts [S + 1] and lengths [S].

    Tiles with more keys come first within each of the two parts: what takes longest should not begin last.
    """
    starts, counts = query_start_loc[:-1], np.diff(query_start_loc)
    num_tiles = -(-counts // QUERY_TILE)
    requests = np.repeat(np.arange(len(counts), dtype=np.int32), num_tiles)
    within = np.arange(len(requests)) - np.repeat(np.cumsum(num_tiles) - num_tiles, num_tiles)
    # A tile sees the tokens before the step and the step's own up to its last.
    ends = np.minimum((within + 1) * QUERY_TILE, counts[requests])
    keys = (seq_lens - counts)[requests] + ends
    is_single = counts[requests] == 1
    order = np.lexsort((-keys, is_single))
    tiles = np.stack([requests, starts[requests] + within * QUERY_TILE], axis=1).astype(np.int32)[order]
    return tiles, int(len(tiles) - is_single.sum())
