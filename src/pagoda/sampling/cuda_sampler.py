"""CudaSampler: choosing tokens on a GPU, without sorting the vocabulary. The meaning is that of `torch_sampler`, which says it.

The host never waits for the device here, and no device memory is allocated after the start.
"""

from __future__ import annotations

import numpy as np
import torch

from pagoda.errors import InvalidValueError
from pagoda.planning.cuda_sampling import BINS, GATHERED, MAX_CHUNKS, MOST_TOKENS, edit_capacity
from pagoda.sampling.batch import Int64, SamplingBatch
from pagoda.sampling.cuda import edits, histogram, peaks
from pagoda.sampling.cuda.choice import choose
from pagoda.sampling.cuda.edit_arrays import KINDS, EditArrays
from pagoda.sampling.cuda.logprobs import LaunchedLogprobs, Logprobs
from pagoda.sampling.cuda.peaks import GROUP, Chunks
from pagoda.sampling.cuda.splits import Splits
from pagoda.sampling.cuda.staging import Arrays, Staging

# Tokens that a program takes at once; of the peaks for each of `GROUP` chunks.
PEAK_BLOCK = 1024
HISTOGRAM_BLOCK = 2048
EDIT_BLOCK = 512
# A token this far below the largest, in units of the temperature, weighs nothing: 2**40 × exp(-28) < 1.
_FARTHEST = 28.0


class CudaSampler:
    """Its memory is allocated once: `planning.cuda_sampling.sampler_bytes`. Calls follow each other on one stream."""

    def __init__(self, device: torch.device, max_rows: int, vocab_size: int, multiprocessors: int) -> None:
        """max_rows: of one call. vocab_size: tokens that there really are; logits may be wider.
        multiprocessors: of the device. Raises `InvalidValueError` for a vocabulary of more than `MOST_TOKENS`.
        """
        if vocab_size > MOST_TOKENS:
            raise InvalidValueError("vocab_size", vocab_size, f"at most {MOST_TOKENS:,}")
        self._vocab_size, self._multiprocessors = vocab_size, multiprocessors
        self._edit_capacity = edit_capacity(max_rows, vocab_size)
        float64, int64, int32 = torch.float64, torch.int64, torch.int32
        self._staging = Staging(
            device,
            {
                "temperatures": (float64, max_rows),
                "top_p": (float64, max_rows),
                "uniforms": (float64, max_rows),
                "least": (int64, max_rows),
                "top_k": (int32, max_rows),
                "bins_per_unit": (torch.float32, max_rows),
                "starts": (int32, KINDS * (max_rows + 1)),
                "edits": (int32, 2 * self._edit_capacity),
            },
        )

        arrays = self._staging.device
        self._cuts = tuple(arrays[name] for name in ("temperatures", "bins_per_unit", "least", "top_k"))
        self._draws = arrays["top_p"], arrays["uniforms"]
        self._edits = arrays["starts"], max_rows + 1, arrays["edits"]
        self._values = arrays["edits"].view(torch.float32)

        def memory(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._peaks = memory(int64, max_rows, MAX_CHUNKS)
        self._flags = memory(int32, max_rows)
        self._saved = memory(torch.float32, self._edit_capacity)
        self._histogram = memory(int32, max_rows, BINS), memory(int64, max_rows, BINS)
        self._scratch = (
            memory(int32, max_rows, BINS),
            memory(int64, max_rows, BINS),
            memory(int64, max_rows, GATHERED),
            memory(int64, max_rows, GATHERED),
        )
        self._logprobs = Logprobs(device, max_rows, vocab_size, multiprocessors)

    @property
    def num_bytes(self) -> int:
        """Of the device's memory."""
        tensors = (self._peaks, self._flags, self._saved, *self._histogram, *self._scratch)
        return sum(tensor.nbytes for tensor in tensors) + self._staging.num_bytes + self._logprobs.num_bytes

    def launch(self, logits: torch.Tensor, batch: SamplingBatch, token_ids: torch.Tensor, broken: torch.Tensor) -> None:
        """Choose a token for each row of `logits` [R, at least vocab_size], float32 on the device.

        token_ids [R] int32, broken [R] bool: results, on the device; a broken row's token is some token of the vocabulary.
        The logits are edited in place meanwhile, and are as before when this is done. R is batch.num_rows, at most max_rows.
        """
        if not batch.has_edits:
            self._launch(logits, batch, token_ids, broken)
            return
        changes = EditArrays.of(batch)
        for begin, end in changes.slices(self._edit_capacity):
            rows = slice(begin, end)
            self._launch(logits[rows], batch, token_ids[rows], broken[rows], begin=begin, changes=changes)

    def logprobs(
        self, logits: torch.Tensor, rows: Int64, token_ids: torch.Tensor | Int64, alternatives: int
    ) -> LaunchedLogprobs:
        """Of a token under each of the rows `rows` [N] of `logits` [R, at least vocab_size], and of the most likely.

        token_ids: that of each position [N] on the host; or that of each row of the logits [R] int32 on the device, as
        `launch` leaves them. alternatives: at most `MAX_LOGPROBS`. N is at most max_rows.
        """
        return self._logprobs.launch(logits, rows, token_ids, alternatives)

    def _launch(
        self,
        logits: torch.Tensor,
        batch: SamplingBatch,
        token_ids: torch.Tensor,
        broken: torch.Tensor,
        *,
        begin: int = 0,
        changes: EditArrays | None = None,
    ) -> None:
        """For the rows of `batch` from `begin` on, as many as `logits` has. changes: None if none has edits."""
        num_rows, row_stride, vocab_size = len(logits), logits.stride(0), self._vocab_size
        if num_rows == 0:
            return
        low, high = np.searchsorted(batch.random_rows, [begin, begin + num_rows]).tolist()
        is_random = high > low
        if is_random or changes:
            host = self._staging.host()
            host["temperatures"][:num_rows] = 0.0  # greedy
            _write_chance(host, batch, slice(low, high), begin)
            number = changes.write(begin, begin + num_rows, host) if changes else 0
            self._staging.send(2 * number)
        if changes:
            edits.edit[num_rows,](logits, row_stride, *self._edits, self._values, self._saved, self._flags, EDIT_BLOCK)
        chunks = Chunks.of(vocab_size, PEAK_BLOCK)
        shape = logits, row_stride, vocab_size, chunks.size
        split = Splits.of(num_rows, vocab_size, chunks.size * GROUP, self._multiprocessors)
        peaks.find_peaks[num_rows, split.number](
            *shape,
            split.blocks,
            self._peaks,
            *(self._histogram if is_random else (None, None)),
            MAX_CHUNKS,
            GROUP,
            PEAK_BLOCK,
            num_warps=8,
        )
        if is_random:
            filling = Splits.of(num_rows, vocab_size, HISTOGRAM_BLOCK, self._multiprocessors)
            histogram.fill[num_rows, filling.number](
                *shape,
                filling.blocks,
                self._peaks,
                *self._cuts,
                *self._histogram,
                MAX_CHUNKS,
                HISTOGRAM_BLOCK,
                num_warps=8,
            )
        chance = (*self._cuts, *self._draws, *self._histogram, *self._scratch)
        choose[num_rows,](
            *shape,
            self._peaks,
            self._flags if changes else None,
            *(chance if is_random else [None] * len(chance)),
            token_ids,
            broken.view(torch.int8),
            MAX_CHUNKS,
            GATHERED,
            GROUP,
            GROUP * PEAK_BLOCK,
            num_warps=8 if is_random else 1,
        )
        if changes:
            edits.restore[num_rows,](logits, row_stride, *self._edits, self._saved, EDIT_BLOCK)


def _write_chance(host: Arrays, batch: SamplingBatch, chosen: slice, begin: int) -> None:
    """Parameters of these of the random rows. begin: the batch's row that is row 0 of the launch."""
    rows, temperature, top_k = batch.random_rows[chosen] - begin, batch.temperature[chosen], batch.top_k[chosen]
    host["temperatures"][rows] = temperature
    host["top_p"][rows] = batch.top_p[chosen]
    host["uniforms"][rows] = batch.uniforms[chosen]
    host["least"][rows] = np.maximum(np.ceil(batch.min_p[chosen] * 2.0**40), 1.0)
    host["top_k"][rows] = np.where(top_k == 0, MOST_TOKENS, np.minimum(top_k, MOST_TOKENS))
    # Within float32, and not zero, so that an infinite distance times this is no NaN.
    host["bins_per_unit"][rows] = np.clip(BINS / _FARTHEST / np.maximum(temperature, 1e-30), 1e-30, 1e30)
