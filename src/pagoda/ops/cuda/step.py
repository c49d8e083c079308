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
    query_tiles [N, 2]       for attention over several tokens of a request: (request, its first token of the tile in the step),
                             `QUERY_TILE` tokens a tile
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
    is_decode: bool

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_seqs(self) -> int:
        return self.seq_lens.shape[0]


# Tokens of one request that attention over several takes at once; the GPU's matrix products have at least 16 rows.
QUERY_TILE = 64


def query_tiles(query_start_loc: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """`CudaStep.query_tiles` [N, 2] of a step with these starts [S + 1]; also of one token of each request."""
    starts, counts = query_start_loc[:-1], np.diff(query_start_loc)
    tiles = -(-counts // QUERY_TILE)
    requests = np.repeat(np.arange(len(counts), dtype=np.int32), tiles)
    within = np.arange(len(requests)) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    return np.stack([requests, starts[requests] + within * QUERY_TILE], axis=1).astype(np.int32)
