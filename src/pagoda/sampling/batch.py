"""SamplingBatch: the sampling of one step as arrays, prepared in numpy once for every kind of device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagoda.sampling.state import SamplingState, draw_ahead

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
_NO_ROWS = np.zeros(0, np.int64)
_NO_NUMBERS = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Edits:
    """Single logits to change: values [E] for the tokens ids [E] of the rows [E]. No (row, id) occurs twice."""

    rows: Int64
    ids: Int64
    values: Float32


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """R rows of logits, and how the next token of each is chosen.

    Edits come first, in this order: repetition penalty (`repetition`), presence and frequency penalty (`subtract`),
    logit_bias (`add`), tokens that cannot be chosen (`bar`, its values -inf). None: no row has any.
    random_rows [K]  the rows that choose at random, ascending; the others take the most likely token
    temperature, top_k, top_p, min_p, uniforms [K]  of those rows
    """

    num_rows: int
    repetition: Edits | None
    subtract: Edits | None
    add: Edits | None
    bar: Edits | None
    random_rows: Int64
    temperature: Float64
    top_k: Int64
    top_p: Float64
    min_p: Float64
    uniforms: Float64

    @classmethod
    def of(cls, states: Sequence[SamplingState]) -> SamplingBatch:
        """For the requests whose logits are the rows, in this order."""
        edited = [(row, state) for row, state in enumerate(states) if state.has_edits]
        random_rows = [row for row, state in enumerate(states) if not state.is_greedy]
        chance = [states[row] for row in random_rows]
        params = [state.params for state in chance]
        draw_ahead(chance)
        return cls(
            num_rows=len(states),
            repetition=_repetition(edited),
            subtract=_subtract(edited),
            add=_edits((row, state.biased, state.bias) for row, state in edited if len(state.biased)),
            bar=_edits(
                (row, state.barred, np.full(len(state.barred), -np.inf)) for row, state in edited if state.bars_end
            ),
            random_rows=np.array(random_rows, np.int64) if chance else _NO_ROWS,
            temperature=np.array([each.temperature for each in params]) if chance else _NO_NUMBERS,
            top_k=np.array([each.top_k for each in params], np.int64) if chance else _NO_ROWS,
            top_p=np.array([each.top_p for each in params]) if chance else _NO_NUMBERS,
            min_p=np.array([each.min_p for each in params]) if chance else _NO_NUMBERS,
            uniforms=np.array([state.uniform for state in chance]) if chance else _NO_NUMBERS,
        )

    @property
    def has_edits(self) -> bool:
        return (self.repetition or self.subtract or self.add or self.bar) is not None


def _repetition(states: Iterable[tuple[int, SamplingState]]) -> Edits | None:
    return _edits(
        (row, state.seen.ids, np.full(len(state.seen.ids), state.params.repetition_penalty))
        for row, state in states
        if state.seen is not None
    )


def _subtract(states: Iterable[tuple[int, SamplingState]]) -> Edits | None:
    return _edits(
        (row, state.output.ids, state.params.presence_penalty + state.params.frequency_penalty * state.output.counts)
        for row, state in states
        if state.output is not None
    )


def _edits(parts: Iterable[tuple[int, Int64, npt.NDArray[np.floating]]]) -> Edits | None:
    kept = [part for part in parts if len(part[1])]
    if not kept:
        return None
    return Edits(
        rows=np.repeat(np.array([row for row, _, _ in kept], np.int64), [len(ids) for _, ids, _ in kept]),
        ids=np.concatenate([ids for _, ids, _ in kept]),
        values=np.concatenate([values for _, _, values in kept]).astype(np.float32),
    )
