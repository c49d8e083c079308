"""From a SchedulerOutput to arrays: what every runner keeps of running requests, in numpy, for any kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pagoda.core.step import NewRequest, RequestKey, ScheduledRow, SchedulerOutput
from pagoda.errors import InvariantError
from pagoda.runner.batch import Batch

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PromptLogits:
    """Logits that tell the log-probabilities of a row's prompt tokens.

    row: the step's row. first: the first of their rows in the logits; they are consecutive.
    token_ids [P]: the prompt token that follows each. position: of the first of these.
    """

    row: int
    first: int
    token_ids: Int64
    position: int


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step ready to run.

    keys: the request of each row. sampling_rows [M]: the rows that sample, ascending. sampling_logits [M]: which row of
    the logits chooses the token of each. prompts: rows that want log-probabilities of prompt tokens and have some here.
    """

    step: int
    keys: tuple[RequestKey, ...]
    batch: Batch
    sampling_rows: Int64
    sampling_logits: Int64
    prompts: tuple[PromptLogits, ...]


class InputBatch:
    """The running requests' tokens and block tables, kept in step with the scheduler's.

    The scheduler names positions; which tokens are there, what was sampled and in which blocks it lies is known here.
    A step that contradicts what is known raises `InvariantError` and fails as a whole: no scheduler should ask for it.
    """

    def __init__(self, num_blocks: int, block_size: int, max_num_seqs: int, vocab_size: int) -> None:
        """vocab_size: tokens that there really are, which every token id must be below."""
        self._num_blocks, self._block_size = num_blocks, block_size
        self._max_num_seqs, self._vocab_size = max_num_seqs, vocab_size
        self._running: dict[RequestKey, _Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    def append(self, key: RequestKey, token_id: int) -> None:
        """The next token of a running request was chosen."""
        self._running[key].tokens.extend([token_id])

    def prepare(self, step: SchedulerOutput) -> PreparedStep:
        """Forget, add, and lay out the step's rows."""
        for key in step.dropped:
            # A step that failed may never have come to add it.
            self._running.pop(key, None)
        for request in step.new:
            self._add(request)
        if not step.rows:
            raise InvariantError(f"step {step.step} has no rows")
        running = [self._checked(row) for row in step.rows]
        return self._laid_out(step, running)

    def _add(self, request: NewRequest) -> None:
        key, tokens = request.key, np.array(request.token_ids, np.int64)
        if key in self._running:
            raise InvariantError(f"{key} is new, but it is running already")
        if len(self._running) >= self._max_num_seqs:
            raise InvariantError(f"{key} is new, but the {self._max_num_seqs:,} that may run at once are running")
        if not 1 <= request.num_prompt_tokens <= len(tokens):
            raise InvariantError(f"{key} has {request.num_prompt_tokens:,} prompt tokens of {len(tokens):,}")
        if tokens.min() < 0 or tokens.max() >= self._vocab_size:
            # On a GPU an id outside the table would end the process, not the request.
            raise InvariantError(f"{key} has token ids that are not from 0 to {self._vocab_size - 1:,}")
        wants_prompt = request.sampling.prompt_logprobs is not None
        self._running[key] = _Running(request.num_prompt_tokens, wants_prompt, _Ints(tokens))

    def _checked(self, row: ScheduledRow) -> _Running:
        """The row's request, moved on by the row."""
        known = self._running.get(row.key)
        if known is None:
            raise InvariantError(f"{row.key} has a row, but it is not running")
        end = row.start + row.num_tokens
        if row.start != known.num_computed or not row.start < end <= len(known.tokens):
            raise InvariantError(
                f"{row.key} is to compute positions {row.start:,} to {end - 1:,}, but {known.num_computed:,} of its "
                f"{len(known.tokens):,} known tokens are computed"
            )
        if row.samples and end != len(known.tokens):
            raise InvariantError(f"{row.key} samples after position {end - 1:,}, which is not its last")
        if any(not 0 <= block_id < self._num_blocks for block_id in row.new_block_ids):
            raise InvariantError(f"{row.key} is given a block that is not one of the {self._num_blocks:,} there are")
        known.blocks.extend(row.new_block_ids)
        if end > len(known.blocks) * self._block_size:
            raise InvariantError(f"{row.key} is to compute position {end - 1:,}, for which its table has no block")
        known.num_computed = end
        return known

    def _laid_out(self, step: SchedulerOutput, running: Sequence[_Running]) -> PreparedStep:
        rows = step.rows
        starts = np.array([row.start for row in rows], np.int64)
        counts = np.array([row.num_tokens for row in rows], np.int64)
        query_start_loc = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(counts, out=query_start_loc[1:])
        row_of_token = np.repeat(np.arange(len(rows)), counts)
        positions = np.arange(query_start_loc[-1]) - (query_start_loc[:-1] - starts)[row_of_token]
        pieces = [
            known.tokens.values[row.start : row.start + row.num_tokens]
            for row, known in zip(rows, running, strict=True)
        ]
        block_table = np.zeros((len(rows), max(len(known.blocks) for known in running)), np.int32)
        for table, known in zip(block_table, running, strict=True):
            table[: len(known.blocks)] = known.blocks.values
        block, offset = np.divmod(positions, self._block_size)
        new_blocks = [block_id for row in rows for block_id in row.new_block_ids]
        logit_rows, sampling_rows, sampling_logits, prompts = _logit_rows(rows, running, query_start_loc)
        batch = Batch(
            input_ids=np.concatenate(pieces),
            positions=positions,
            slot_mapping=block_table[row_of_token, block].astype(np.int64) * self._block_size + offset,
            query_start_loc=query_start_loc.astype(np.int32),
            seq_lens=(starts + counts).astype(np.int32),
            block_table=block_table,
            logit_rows=logit_rows,
            new_blocks=np.array(new_blocks, np.int64),
        )
        keys = tuple(row.key for row in rows)
        return PreparedStep(step.step, keys, batch, sampling_rows, sampling_logits, prompts)


def _logit_rows(
    rows: Sequence[ScheduledRow], running: Sequence[_Running], query_start_loc: Int64
) -> tuple[Int64, Int64, Int64, tuple[PromptLogits, ...]]:
    """(logit_rows of the batch, sampling_rows, sampling_logits, prompts)."""
    wanted: list[Int64] = []
    num_wanted = 0
    sampling_rows: list[int] = []
    sampling_logits: list[int] = []
    prompts: list[PromptLogits] = []
    for index, (row, known) in enumerate(zip(rows, running, strict=True)):
        first_token = int(query_start_loc[index])
        # The logits at a position speak of the next one, so those at the prompt's last speak of the output.
        num_prompt = min(row.start + row.num_tokens, known.num_prompt_tokens - 1) - row.start
        if known.wants_prompt and num_prompt > 0:
            following = known.tokens.values[row.start + 1 : row.start + 1 + num_prompt].copy()
            prompts.append(PromptLogits(index, num_wanted, following, row.start + 1))
            wanted.append(np.arange(first_token, first_token + num_prompt))
            num_wanted += num_prompt
        if row.samples:
            sampling_rows.append(index)
            sampling_logits.append(num_wanted)
            wanted.append(query_start_loc[index + 1 : index + 2] - 1)
            num_wanted += 1
    logit_rows = np.concatenate(wanted) if wanted else np.zeros(0, np.int64)
    return logit_rows, np.array(sampling_rows, np.int64), np.array(sampling_logits, np.int64), tuple(prompts)


class _Ints:
    """An int64 array that grows at its end, in constant time a number on average."""

    def __init__(self, values: Int64) -> None:
        self._room = values
        self._length = len(values)

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> Int64:
        return self._room[: self._length]

    def extend(self, values: Sequence[int]) -> None:
        length = self._length + len(values)
        if length > len(self._room):
            room = np.zeros(max(16, 2 * length), np.int64)
            room[: self._length] = self.values
            self._room = room
        self._room[self._length : length] = values
        self._length = length


@dataclass(slots=True)
class _Running:
    """One running request. num_computed: positions computed by the steps prepared so far."""

    num_prompt_tokens: int
    wants_prompt: bool
    tokens: _Ints
    blocks: _Ints = field(default_factory=lambda: _Ints(np.zeros(0, np.int64)))
    num_computed: int = 0
