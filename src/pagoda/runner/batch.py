"""Batch: one step as arrays, prepared in numpy once for every kind of device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """T tokens of S requests, concatenated in the order of the step's rows.

    input_ids [T]            token ids
    positions [T]            position of each token in its own request
    slot_mapping [T]         where its K and V go: block id × block size + offset
    query_start_loc [S + 1]  request s has tokens query_start_loc[s] … query_start_loc[s + 1] - 1
    seq_lens [S]             tokens of request s in the cache once this step has written its own
    block_table [S, B]       block ids of request s in order, B the most any of them has; unused entries are 0
    logit_rows [R]           which of the T tokens get logits, ascending
    new_blocks [N]           blocks to zero before anything else; new ones that this step fills completely are not among them
    """

    input_ids: Int64
    positions: Int64
    slot_mapping: Int64
    query_start_loc: Int32
    seq_lens: Int32
    block_table: Int32
    logit_rows: Int64
    new_blocks: Int64
