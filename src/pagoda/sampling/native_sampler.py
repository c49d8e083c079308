"""Choosing tokens with the native kernels. The meaning is that of `torch_sampler`, which says it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pagoda import _native
from pagoda.core.step import TokenLogprobs
from pagoda.sampling.batch import Edits, SamplingBatch

Bool = npt.NDArray[np.bool_]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
# temperature, top_k, top_p, min_p, uniforms [K]: of rows that choose at random.
_Chance = tuple[Float64, Int64, Float64, Float64, Float64]


def sample(threads: _native.Threads, logits: Float32, batch: SamplingBatch, vocab_size: int) -> tuple[Int64, Bool]:
    """Choose a token for each row of `logits` [R, at least vocab_size]; they are not changed.

    Returns token ids [R], and which rows are broken [R] (`broken_rows`); theirs are any tokens.
    """
    chance = (batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.uniforms)
    if not batch.has_edits:
        return _native.choose(threads, logits, vocab_size, batch.random_rows, *chance)
    rows, edited = _edited(logits, batch, vocab_size)
    # Rows with edits are chosen from twice: as they are, which tells the broken ones, and edited.
    among = np.searchsorted(rows, batch.random_rows)
    own = rows[np.minimum(among, len(rows) - 1)] == batch.random_rows
    token_ids, broken = _native.choose(threads, logits, vocab_size, batch.random_rows[~own], *_of(chance, ~own))
    token_ids[rows], _ = _native.choose(threads, edited, vocab_size, among[own], *_of(chance, own))
    return token_ids, broken


def broken_rows(logits: Float32, vocab_size: int) -> Bool:
    """Rows of `logits` [R, at least vocab_size] that have a NaN or +inf, or nothing but -inf: [R]."""
    # The largest of several numbers and a NaN is NaN, so this one number per row tells.
    broken: Bool = ~np.isfinite(logits[:, :vocab_size].max(axis=-1))
    return broken


def token_logprobs(  # noqa: PLR0917 - as the native function has them
    threads: _native.Threads, logits: Float32, vocab_size: int, rows: Int64, token_ids: Int64, alternatives: int
) -> list[TokenLogprobs]:
    """Of the tokens `token_ids` [N] under the rows `rows` [N] of `logits` [R, at least vocab_size], and of the most likely."""
    columns = _native.logprobs(threads, logits, vocab_size, rows, token_ids, alternatives)
    return [
        TokenLogprobs(tuple(ids), tuple(logprobs), tuple(ranks))
        for ids, logprobs, ranks in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _of(chance: _Chance, which: Bool) -> _Chance:
    temperature, top_k, top_p, min_p, uniforms = chance
    return temperature[which], top_k[which], top_p[which], min_p[which], uniforms[which]


def _edited(logits: Float32, batch: SamplingBatch, vocab_size: int) -> tuple[Int64, Float32]:
    """The rows that have edits, ascending, and copies of them with the edits done, still finite but where a token cannot
    be chosen."""
    changes = [edits for edits in (batch.repetition, batch.subtract, batch.add) if edits is not None]
    bars = [batch.bar] if batch.bar is not None else []
    rows = np.unique(np.concatenate([edits.rows for edits in (*changes, *bars)]))
    edited = logits[rows, :vocab_size]

    def places(edits: Edits) -> tuple[Int64, Int64]:
        return np.searchsorted(rows, edits.rows), edits.ids

    with np.errstate(over="ignore", invalid="ignore"):
        if batch.repetition is not None:
            where, penalty = places(batch.repetition), batch.repetition.values
            old = edited[where]
            edited[where] = np.where(old > 0, old / penalty, old * penalty)
        if batch.subtract is not None:
            edited[places(batch.subtract)] -= batch.subtract.values
        if batch.add is not None:
            edited[places(batch.add)] += batch.add.values
    # A logit near float32's limit may have been pushed over it.
    for edits in changes:
        where = places(edits)
        edited[where] = np.minimum(edited[where], np.finfo(np.float32).max)
    for edits in bars:
        edited[places(edits)] = edits.values
    return rows, edited
