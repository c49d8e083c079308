"""Workspace of the GPU's path: what one step needs beside weights and KV cache."""

from __future__ import annotations

# Steps of up to so many requests, each computing one token, have whatever can be joined in one kernel.
FEW_ROWS = 16
MOST_LOGIT_ROWS = 256
# Where kernels that split a sum leave its parts, and count who has come.
SCRATCH_FLOATS = 16 << 20
NUM_COUNTERS = 1 << 16
# The narrowest tile of outputs that a product with a residual has.
NARROWEST_TILE = 4
# KV blocks beyond those that requests get, for the rows that pad a decode step: `num_blocks` + so many are allocated.
SPARE_BLOCKS = 1


def most_sums(width: int) -> int:
    """Columns that the sums of squares of a row of so many outputs need at most: see `ops.cuda.epilogue.Residual`."""
    return -(-width // NARROWEST_TILE)


def few_rows(max_batched_tokens: int, max_num_seqs: int) -> int:
    return min(max_batched_tokens, max_num_seqs, FEW_ROWS)


def logit_slice_rows(max_batched_tokens: int, max_num_seqs: int) -> int:
    """How many rows of logits exist at once; a step that has more goes over them in slices."""
    return min(max_batched_tokens, max_num_seqs, MOST_LOGIT_ROWS)


def decode_rows(max_batched_tokens: int, max_num_seqs: int) -> tuple[int, ...]:
    """To how many rows a decode step may be padded, ascending: less than a fifth of one beyond 32 is padding."""
    most = min(max_batched_tokens, max_num_seqs)
    sizes = (1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, most, 32))
    return (*(size for size in sizes if size < most), most)
