"""From a SchedulerOutput to arrays: what every runner keeps of running requests, in numpy, for any kind of device."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pagoda import checks
from pagoda.core.step import NewRequest, RequestKey, ScheduledRow, SchedulerOutput
from pagoda.errors import InvariantError
from pagoda.runner.batch import Batch, Int32
from pagoda.sampling.state import SamplingState

Int64 = npt.NDArray[np.int64]


def on_its_way(place: int) -> int:
    """What stands for the token that the latest prepared step chooses for the row with this place among those that sample."""
    return -1 - place


@dataclass(slots=True)
class Running:
    """One running request.

    tokens: int64, all there are; some may be `on_its_way`. sampling: what choosing the next one needs to remember.
    blocks: int32, its block ids in order. num_computed: positions computed by the steps prepared so far.
    error: why it has failed; it is scheduled on until it is dropped.
    """

    num_prompt_tokens: int
    tokens: array[int]
    sampling: SamplingState
    blocks: array[int] = field(default_factory=lambda: array("i"))
    num_computed: int = 0
    error: str | None = None

    @property
    def wants_prompt(self) -> bool:
        return self.sampling.params.prompt_logprobs is not None

    def token_ids(self, start: int, end: int) -> Int64:
        """A copy of the tokens at these positions."""
        return np.frombuffer(self.tokens[start:end], np.int64)

    def arrived(self, position: int, token_id: int) -> None:
        """The token at this position, which was on its way, is known."""
        self.tokens[position] = token_id
        self.sampling.append(token_id)


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

    keys, running: the request of each row, and what is kept of it; by the time the results are there, that key may have been
    dropped, or be another request's. sampling_rows [M]: the rows that sample, ascending. sampling_logits [M]: which row of
    the logits chooses the token of each. prompts: rows that want log-probabilities of prompt tokens and have some here.
    """

    step: int
    keys: tuple[RequestKey, ...]
    running: tuple[Running, ...]
    batch: Batch
    sampling_rows: Int64
    sampling_logits: Int64
    prompts: tuple[PromptLogits, ...]


class InputBatch:
    """The running requests' tokens and block tables, kept in step with the scheduler's.

    The scheduler names positions; which tokens are there, what was sampled and in which blocks it lies is known here.
    A token that a step chooses is on its way once that step is prepared. Until `Running.arrived` its place in the texts, and in
    `Batch.input_ids` of the next step, holds `on_its_way(place)`, with its place among the rows that sample.
    A step that contradicts what is known raises `InvariantError` and fails as a whole: no scheduler should ask for it.
    A step that computes one token of each request, as most do, is laid out without any numpy call that lets another thread
    have Python's lock, as `take` and `arange` do: the device waits for the step, and would wait for that thread too.
    """

    def __init__(self, num_blocks: int, block_size: int, max_num_seqs: int, vocab_size: int) -> None:
        """vocab_size: tokens that there really are, which every token id must be below."""
        self._num_blocks, self._block_size = num_blocks, block_size
        self._max_num_seqs, self._vocab_size = max_num_seqs, vocab_size
        self._running: dict[RequestKey, Running] = {}
        self._numbers = np.arange(max_num_seqs + 1)
        self._lost: list[int] = []

    def __len__(self) -> int:
        return len(self._running)

    def forget_all(self) -> None:
        self._running.clear()

    def lose_block(self, block_id: int) -> None:
        """See `LoadedRunner.lose_block`."""
        self._lost.append(checks.integer("block_id", block_id, 0, self._num_blocks - 1))

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
        key, tokens = request.key, array("q", request.token_ids)
        if key in self._running:
            raise InvariantError(f"{key} is new, but it is running already")
        if len(self._running) >= self._max_num_seqs:
            raise InvariantError(f"{key} is new, but the {self._max_num_seqs:,} that may run at once are running")
        if not 1 <= request.num_prompt_tokens <= len(tokens):
            raise InvariantError(f"{key} has {request.num_prompt_tokens:,} prompt tokens of {len(tokens):,}")
        if min(tokens) < 0 or max(tokens) >= self._vocab_size:
            # On a GPU an id outside the table would end the process, not the request.
            raise InvariantError(f"{key} has token ids that are not from 0 to {self._vocab_size - 1:,}")
        self._running[key] = Running(request.num_prompt_tokens, tokens, SamplingState(request, self._vocab_size))

    def _checked(self, row: ScheduledRow) -> Running:
        """The row's request, moved on by the row."""
        known = self._running.get(row.key)
        if known is None:
            raise InvariantError(f"{row.key} has a row, but it is not running")
        end = row.start + row.num_tokens
        if row.num_shared_blocks:
            if known.blocks or row.num_shared_blocks > len(row.new_block_ids):
                raise InvariantError(f"{row.key} has {row.num_shared_blocks} shared blocks that do not begin its table")
            known.num_computed = row.num_shared_blocks * self._block_size
        if row.start != known.num_computed or not row.start < end <= len(known.tokens):
            raise InvariantError(
                f"{row.key} is to compute positions {row.start:,} to {end - 1:,}, but {known.num_computed:,} of its "
                f"{len(known.tokens):,} known tokens are computed"
            )
        if row.samples and end != len(known.tokens):
            raise InvariantError(f"{row.key} samples after position {end - 1:,}, which is not its last")
        if row.new_block_ids:
            if any(not 0 <= block_id < self._num_blocks for block_id in row.new_block_ids):
                raise InvariantError(
                    f"{row.key} is given a block that is not one of the {self._num_blocks:,} there are"
                )
            known.blocks.extend(row.new_block_ids)
        if end > len(known.blocks) * self._block_size:
            raise InvariantError(f"{row.key} is to compute position {end - 1:,}, for which its table has no block")
        known.num_computed = end
        return known

    def _laid_out(self, step: SchedulerOutput, running: Sequence[Running]) -> PreparedStep:
        rows, size = step.rows, self._block_size
        block_table = _block_table(running)
        starts = np.array([row.start for row in rows], np.int64)
        if step.num_tokens == len(rows):  # a token of each
            query_start_loc, positions = self._numbers[: len(rows) + 1], starts
            shares = zip(rows, running, strict=True)
            input_ids = np.array([known.tokens[row.start] for row, known in shares], np.int64)
            blocks = [known.blocks[row.start // size] for row, known in zip(rows, running, strict=True)]
            slot_mapping = np.array(blocks, np.int64) * size + starts % size
        else:
            counts = [row.num_tokens for row in rows]
            query_start_loc = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(counts, out=query_start_loc[1:])
            row_of_token = np.repeat(self._numbers[: len(rows)], counts)
            positions = np.arange(query_start_loc[-1]) - (query_start_loc[:-1] - starts)[row_of_token]
            shares = zip(rows, running, strict=True)
            input_ids = np.concatenate([known.token_ids(row.start, known.num_computed) for row, known in shares])
            block, offset = np.divmod(positions, size)
            slot_mapping = block_table[row_of_token, block].astype(np.int64) * size + offset
        logit_rows, sampling_rows, sampling_logits, prompts = _logit_rows(rows, running, query_start_loc[1:].tolist())
        new_blocks = self._lost + [
            block
            for row, known in zip(rows, running, strict=True)
            if row.new_block_ids
            for block in _not_filled(row, known, size)
        ]
        self._lost = []
        batch = Batch(
            input_ids=input_ids,
            positions=positions,
            slot_mapping=slot_mapping,
            query_start_loc=query_start_loc.astype(np.int32),
            seq_lens=np.array([known.num_computed for known in running], np.int32),
            block_table=block_table,
            logit_rows=logit_rows,
            new_blocks=np.array(new_blocks, np.int64),
        )
        for place, index in enumerate(sampling_rows.tolist()):
            running[index].tokens.append(on_its_way(place))
        keys = tuple([row.key for row in rows])
        return PreparedStep(step.step, keys, tuple(running), batch, sampling_rows, sampling_logits, prompts)


def _not_filled(row: ScheduledRow, known: Running, block_size: int) -> Sequence[int]:
    """Those of the row's blocks that are new, but for the ones all of whose positions this step computes."""
    new = row.new_block_ids[row.num_shared_blocks :]
    first = len(known.blocks) - len(new)
    return new[max(known.num_computed // block_size - first, 0) :]


def _block_table(running: Sequence[Running]) -> Int32:
    """[S, B], as `Batch` has it."""
    width = max([len(known.blocks) for known in running])
    # Joined as bytes, which costs a fraction of what any array function does with so many small arrays.
    rows = [known.blocks.tobytes().ljust(width * known.blocks.itemsize, b"\0") for known in running]
    return np.frombuffer(bytearray().join(rows), np.int32).reshape(len(running), width)


def _logit_rows(
    rows: Sequence[ScheduledRow], running: Sequence[Running], ends: Sequence[int]
) -> tuple[Int64, Int64, Int64, tuple[PromptLogits, ...]]:
    """(logit_rows of the batch, sampling_rows, sampling_logits, prompts). ends: of each row's tokens in the step."""
    wanted: list[int] = []
    sampling_rows: list[int] = []
    sampling_logits: list[int] = []
    prompts: list[PromptLogits] = []
    for index, (row, known, end) in enumerate(zip(rows, running, ends, strict=True)):
        if known.wants_prompt:
            # The logits at a position speak of the next one, so those at the prompt's last speak of the output.
            num_prompt = min(row.start + row.num_tokens, known.num_prompt_tokens - 1) - row.start
            if num_prompt > 0:
                following = known.token_ids(row.start + 1, row.start + 1 + num_prompt)
                prompts.append(PromptLogits(index, len(wanted), following, row.start + 1))
                wanted += range(end - row.num_tokens, end - row.num_tokens + num_prompt)
        if row.samples:
            sampling_rows.append(index)
            sampling_logits.append(len(wanted))
            wanted.append(end - 1)
    as_array = functools.partial(np.array, dtype=np.int64)
    return as_array(wanted), as_array(sampling_rows), as_array(sampling_logits), tuple(prompts)
