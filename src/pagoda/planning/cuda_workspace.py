"""Workspace of the GPU's path: what one step needs beside weights and KV cache."""

from __future__ import annotations

# Steps of up to so many requests, each computing one token, have whatever can be joined in one kernel.
FEW_ROWS = 16
MOST_LOGIT_ROWS = 256
# KV blocks beyond those that requests get, for the rows that pad a decode step: `num_blocks` + so many are allocated.
SPARE_BLOCKS = 1


def few_rows(max_batched_tokens: int, max_num_seqs: int) -> int:
    return min(max_batched_tokens, max_num_seqs, FEW_ROWS)


def logit_slice_rows(max_batched_tokens: int, max_num_seqs: int) -> int:
    """How many rows of logits exist at once; a step that has more goes over them in slices."""
    return min(max_batched_tokens, max_num_seqs, MOST_LOGIT_ROWS)
