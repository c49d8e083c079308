"""Where a step's arrays are put together on the host, and where they lie on the GPU. Allocated once."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pagoda.errors import InvariantError
from pagoda.ops.cuda.feed import feed
from pagoda.ops.cuda.step import CudaStep, query_tiles
from pagoda.planning.cuda_step import WORD, StepLayout, sent_words
from pagoda.planning.cuda_workspace import decode_rows
from pagoda.runner.batch import Batch
from pagoda.runner.cuda_queue import CudaQueue

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SentStep:
    """A step whose arrays are on their way to the device. To be finished by `feed`.

    new_blocks [N]: blocks to clear before. sent_table: see `feed`.
    """

    step: CudaStep
    sent_table: torch.Tensor
    new_blocks: torch.Tensor | None = None


class _Staging:
    """words: int32, on the host. memory: the same, as torch sees it. copied: when it has been read and may be filled again."""

    def __init__(self, queue: CudaQueue, num_words: int) -> None:
        self.memory = queue.host_memory(num_words * WORD).view(torch.int32)
        self.words: Int32 = self.memory.numpy()
        self.copied = queue.event()


class StepBuffers:
    """Each step's arrays cross to the device in one copy, from one of two stagings, while the other may still be read.

    A step that is a decode step (`is_decode`) is padded to the next of `rows`, and lies at the same addresses each time.
    width: block ids of the longest sequence. max_tokens: of a step.
    """

    def __init__(
        self, queue: CudaQueue, *, num_blocks: int, block_size: int, width: int, max_tokens: int, max_seqs: int
    ):
        """num_blocks: that requests get; the one behind them is for padding. width: block ids of the longest sequence."""
        self.rows = decode_rows(max_tokens, max_seqs)
        self.spare_block, self.block_size, self.width, self.max_tokens = num_blocks, block_size, width, max_tokens
        num_words = sent_words(num_blocks, width, max_tokens, max_seqs)
        self._stagings = [_Staging(queue, num_words) for _ in range(2)]
        self._words = torch.zeros(num_words, dtype=torch.int32, device=queue.device)
        self._table = torch.zeros(self.rows[-1], width, dtype=torch.int32, device=queue.device)
        self._decode_steps: dict[int, tuple[StepLayout, SentStep]] = {}

    @property
    def num_bytes(self) -> int:
        """Of the device's memory."""
        return self._words.nbytes + self._table.nbytes

    def send(self, batch: Batch) -> SentStep:
        """Raises `InvariantError` for a block table that is too wide."""
        if batch.block_table.shape[1] > self.width:
            raise InvariantError(
                f"a request has {batch.block_table.shape[1]:,} blocks; the longest may have {self.width:,}"
            )
        staging = self._stagings[0]
        self._stagings.reverse()
        staging.copied.synchronize()
        words, width = staging.words, batch.block_table.shape[1]
        if is_decode(batch):
            layout, sent = self.decode_step(self.rows[bisect_left(self.rows, len(batch.seq_lens))])
            self._fill_decode(words, layout, batch)
        else:
            tiles, num_wide = query_tiles(batch.query_start_loc, batch.seq_lens)
            layout = StepLayout.of(len(batch.input_ids), len(batch.seq_lens), len(batch.logit_rows), len(tiles))
            sent = self._laid_out(layout, num_wide, is_decode=False)
            _fill(words, layout, batch, tiles)
        words[0] = width
        new_blocks = layout.new_blocks(width)
        end = new_blocks + len(batch.new_blocks)
        words[new_blocks:end] = batch.new_blocks
        self._words[:end].copy_(staging.memory[:end], non_blocking=True)
        staging.copied.record()
        if end == new_blocks:
            return sent
        return SentStep(sent.step, sent.sent_table, self._words[new_blocks:end])

    def decode_step(self, rows: int) -> tuple[StepLayout, SentStep]:
        """Where a decode step of so many rows lies, padding included."""
        if rows not in self._decode_steps:
            layout = StepLayout.of(rows, rows, rows, rows)
            self._decode_steps[rows] = layout, self._laid_out(layout, 0, is_decode=True)
        return self._decode_steps[rows]

    def feed(self, sent: SentStep, chosen: torch.Tensor, vocab_size: int) -> None:
        """Finish the arrays of a step that was sent. chosen [most rows] int32: what the step before chose."""
        step = sent.step
        feed(
            step.input_ids,
            self._words[:1],
            sent.sent_table,
            chosen=chosen,
            vocab_size=vocab_size,
            block_table=step.block_table,
        )

    def _laid_out(self, layout: StepLayout, num_wide_tiles: int, *, is_decode: bool) -> SentStep:
        words, tokens, seqs = self._words, layout.num_tokens, layout.num_seqs
        step = CudaStep(
            input_ids=words[layout.input_ids : layout.input_ids + tokens],
            positions=words[layout.positions : layout.positions + tokens],
            slot_mapping=words[layout.slot_mapping : layout.slot_mapping + 2 * tokens].view(torch.int64),
            query_start_loc=words[layout.query_start_loc : layout.query_start_loc + seqs + 1],
            seq_lens=words[layout.seq_lens : layout.seq_lens + seqs],
            block_table=self._table[:seqs],
            logit_rows=words[layout.logit_rows : layout.logit_rows + layout.num_logits],
            query_tiles=words[layout.query_tiles : layout.query_tiles + 2 * layout.num_tiles].view(-1, 2),
            num_wide_tiles=num_wide_tiles,
            is_decode=is_decode,
        )
        return SentStep(step, words[layout.block_table :])

    def _fill_decode(self, words: Int32, layout: StepLayout, batch: Batch) -> None:
        seqs, rows = len(batch.seq_lens), layout.num_seqs
        numbers = np.arange(rows + 1, dtype=np.int32)
        slots = words[layout.slot_mapping : layout.slot_mapping + 2 * rows].view(np.int64)
        table = _table(words, layout, batch.block_table.shape[1])
        for begin, values, padding in (
            (layout.input_ids, batch.input_ids, 0),
            (layout.positions, batch.positions, 0),
            (layout.seq_lens, batch.seq_lens, 1),
        ):
            words[begin : begin + seqs] = values
            words[begin + seqs : begin + rows] = padding
        slots[:seqs] = batch.slot_mapping
        slots[seqs:] = self.spare_block * self.block_size
        words[layout.query_start_loc : layout.query_start_loc + rows + 1] = numbers
        words[layout.logit_rows : layout.logit_rows + rows] = numbers[:-1]
        words[layout.query_tiles : layout.query_tiles + 2 * rows].reshape(-1, 2)[:] = numbers[:-1, None]
        table[:seqs] = batch.block_table
        table[seqs:] = self.spare_block


def is_decode(batch: Batch) -> bool:
    """Whether each request computes one token, and gets logits for it."""
    return len(batch.input_ids) == len(batch.seq_lens) == len(batch.logit_rows)


def _fill(words: Int32, layout: StepLayout, batch: Batch, tiles: Int32) -> None:
    tokens, seqs = layout.num_tokens, layout.num_seqs
    words[layout.input_ids : layout.input_ids + tokens] = batch.input_ids
    words[layout.positions : layout.positions + tokens] = batch.positions
    words[layout.slot_mapping : layout.slot_mapping + 2 * tokens].view(np.int64)[:] = batch.slot_mapping
    words[layout.query_start_loc : layout.query_start_loc + seqs + 1] = batch.query_start_loc
    words[layout.seq_lens : layout.seq_lens + seqs] = batch.seq_lens
    words[layout.logit_rows : layout.logit_rows + layout.num_logits] = batch.logit_rows
    words[layout.query_tiles : layout.query_tiles + 2 * layout.num_tiles] = tiles.reshape(-1)
    _table(words, layout, batch.block_table.shape[1])[:] = batch.block_table


def _table(words: Int32, layout: StepLayout, width: int) -> Int32:
    return words[layout.block_table : layout.block_table + layout.num_seqs * width].reshape(layout.num_seqs, width)
