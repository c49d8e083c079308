"""A batch's edits laid out as the kernels read them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pagoda.sampling.batch import Edits, Int64, SamplingBatch
from pagoda.sampling.cuda.staging import Arrays

KINDS = 4


@dataclass(frozen=True, slots=True)
class EditArrays:
    """kinds: of `SamplingBatch`, in their order; None where there are none. starts [4, R + 1]: where each row's begin."""

    kinds: tuple[Edits | None, ...]
    starts: Int64

    @classmethod
    def of(cls, batch: SamplingBatch) -> EditArrays:
        """The rows of each kind ascend, as `SamplingBatch.of` makes them."""
        kinds = (batch.repetition, batch.subtract, batch.add, batch.bar)
        starts = np.zeros((KINDS, batch.num_rows + 1), np.int64)
        rows = np.arange(batch.num_rows + 1)
        for kind, edits in enumerate(kinds):
            if edits is not None:
                starts[kind] = np.searchsorted(edits.rows, rows)
        return cls(kinds, starts)

    def slices(self, capacity: int) -> list[tuple[int, int]]:
        """Rows (begin, end) in order, each slice with at most `capacity` edits, which any one row's fit into."""
        until = self.starts.sum(axis=0)  # edits of all rows before
        cuts, num_rows = [0], len(until) - 1
        while cuts[-1] < num_rows:
            cuts.append(int(np.searchsorted(until, until[cuts[-1]] + capacity, side="right")) - 1)
        return list(itertools.pairwise(cuts))

    def write(self, begin: int, end: int, host: Arrays) -> int:
        """Write those of rows begin to end - 1 to `host`: starts, and pairs (id, bits of the value). Returns how many."""
        pairs = host["edits"].reshape(-1, 2)
        starts = host["starts"].reshape(KINDS, -1)
        written = 0
        for kind, edits in enumerate(self.kinds):
            first, last = int(self.starts[kind, begin]), int(self.starts[kind, end])
            starts[kind, : end - begin + 1] = self.starts[kind, begin : end + 1] - first + written
            if edits is not None:
                pairs[written : written + last - first, 0] = edits.ids[first:last]
                pairs[written : written + last - first, 1] = edits.values[first:last].view(np.int32)
            written += last - first
        return written
