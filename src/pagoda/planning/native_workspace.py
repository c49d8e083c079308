"""Workspace of the native path: what one step needs beside weights and KV cache."""

from __future__ import annotations

MOST_LOGIT_ROWS = 64


def logit_slice_rows(max_batched_tokens: int, max_num_seqs: int) -> int:
    """How many rows of logits exist at once; a step that has more goes over them in slices."""
    return min(max_batched_tokens, max_num_seqs, MOST_LOGIT_ROWS)
