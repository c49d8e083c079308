"""NullRunner: a runner without a model, for tests of the bookkeeping and for load tests of everything around the model.

It keeps a simulated KV cache of token ids. A sampled token is a function of the whole history, read back through the
block table, so a position that was skipped, computed twice or written to another request's block changes the text.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from dataclasses import dataclass

from pagoda.core.step import (
    NewRequest,
    RequestKey,
    RowResult,
    RunnerOutput,
    ScheduledRow,
    SchedulerOutput,
    TokenLogprobs,
)
from pagoda.errors import InvariantError

MAX_IN_FLIGHT = 2
_EMPTY = -1


@dataclass(slots=True)
class _Sequence:
    request: NewRequest
    token_ids: array[int]
    block_table: list[int]
    num_computed: int = 0


class NullRunner:
    """Executes steps as a model would, deterministically, with a hash in place of the model.

    With temperature 0 the text depends on the prompt and `seed` alone; otherwise also on the request's seed and choice.
    Raises `InvariantError` for a step that no scheduler should ask for, such as positions that leave a gap.
    """

    def __init__(
        self, vocab_size: int, num_blocks: int, block_size: int, seed: int = 0, window: int | None = None
    ) -> None:
        """window: a token depends on so many before it; None: on all."""
        self.vocab_size = vocab_size
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.seed = seed
        self.window = window
        self._cache = array("i", [_EMPTY]) * (num_blocks * block_size)
        self._sequences: dict[RequestKey, _Sequence] = {}
        self._done: deque[RunnerOutput] = deque()

    def submit(self, step: SchedulerOutput) -> None:
        """Execute the step. A step is checked and executed row by row; after an error the runner is of no more use."""
        if len(self._done) >= MAX_IN_FLIGHT:
            raise InvariantError(f"step {step.step}: {MAX_IN_FLIGHT} steps are in flight already")
        for key in step.dropped:
            # Unknown ones are fine: the step that should have introduced them may have failed.
            self._sequences.pop(key, None)
        for request in step.new:
            if request.key in self._sequences:
                raise InvariantError(f"step {step.step}: {request.key} is new, but it is in the batch already")
            self._sequences[request.key] = _Sequence(request, array("i", request.token_ids), [])
        for row in step.rows:
            self._extend_table(row)
        self._done.append(RunnerOutput(step.step, tuple([self._execute(row) for row in step.rows])))

    def collect(self) -> RunnerOutput:
        """The results of the oldest step not collected yet."""
        if not self._done:
            raise InvariantError("collect: no step is in flight")
        return self._done.popleft()

    def close(self) -> None:
        """Nothing to release."""

    def _extend_table(self, row: ScheduledRow) -> None:
        sequence = self._sequences.get(row.key)
        if sequence is None:
            raise InvariantError(f"{row.key} has a row, but is not in the batch")
        for place, block_id in enumerate(row.new_block_ids):
            if not 0 <= block_id < self.num_blocks:
                raise InvariantError(f"{row.key} is given block {block_id}; there are {self.num_blocks}")
            if place >= row.num_shared_blocks:
                start = block_id * self.block_size
                self._cache[start : start + self.block_size] = array("i", [_EMPTY]) * self.block_size
        if row.num_shared_blocks:
            if sequence.block_table:
                raise InvariantError(
                    f"{row.key} is given {row.num_shared_blocks} shared blocks after blocks of its own"
                )
            sequence.num_computed = row.num_shared_blocks * self.block_size
        sequence.block_table += row.new_block_ids

    def _execute(self, row: ScheduledRow) -> RowResult:
        sequence = self._sequences[row.key]
        end = row.start + row.num_tokens
        if row.start != sequence.num_computed or not row.start < end <= len(sequence.token_ids):
            raise InvariantError(
                f"{row.key} is to compute positions {row.start} to {end - 1}, but {sequence.num_computed} of its "
                f"{len(sequence.token_ids)} known tokens are computed"
            )
        if end > len(sequence.block_table) * self.block_size:
            raise InvariantError(f"{row.key} is to compute position {end - 1}, for which its table has no block")
        if row.samples and end != len(sequence.token_ids):
            raise InvariantError(f"{row.key} samples after position {end - 1}, which is not its last")
        for position in range(row.start, end):
            slot = sequence.block_table[position // self.block_size] * self.block_size + position % self.block_size
            if self._cache[slot] != _EMPTY:
                raise InvariantError(f"position {position} of {row.key} goes to slot {slot}, which is in use")
            self._cache[slot] = sequence.token_ids[position]
        sequence.num_computed = end
        prompt_logprobs = self._prompt_logprobs(sequence, row.start, end)
        if not row.samples:
            return RowResult(row.key, prompt_logprobs=prompt_logprobs)
        likeliest = self._likeliest(self._read(sequence, end))
        token_id = self._sample(sequence, likeliest)
        sequence.token_ids.append(token_id)
        wanted = sequence.request.sampling.logprobs
        logprobs = None if wanted is None else self._logprobs(token_id, likeliest, wanted)
        return RowResult(row.key, token_id, logprobs, prompt_logprobs)

    def _sample(self, sequence: _Sequence, likeliest: int) -> int:
        """The likeliest token when greedy, another one by seed and choice otherwise; no end token before min_tokens."""
        request = sequence.request
        shift = 0 if request.sampling.temperature == 0 else zlib.crc32(f"{request.seed} {request.key.choice}".encode())
        barred = {*request.end_token_ids, *request.sampling.stop_token_ids}
        if len(sequence.token_ids) - request.num_prompt_tokens >= request.sampling.min_tokens:
            barred = set()
        candidates = ((likeliest + shift + step) % self.vocab_size for step in range(self.vocab_size))
        return next((token_id for token_id in candidates if token_id not in barred), likeliest)

    def _read(self, sequence: _Sequence, end: int) -> int:
        """A checksum of positions 0 … end - 1, or of those within the window, as they are in the cache."""
        checksum = self.seed & 0xFFFFFFFF
        size = self.block_size
        first = 0 if self.window is None else max(0, end - self.window)
        for index in range(first // size, -(-end // size)):
            start = sequence.block_table[index] * size
            tokens = self._cache[start + max(0, first - index * size) : start + min(size, end - index * size)]
            if _EMPTY in tokens:
                raise InvariantError(f"{sequence.request.key} has lost what was in block {start // size} of its table")
            checksum = zlib.crc32(tokens.tobytes(), checksum)
        return checksum

    def _likeliest(self, checksum: int) -> int:
        # A CRC is linear in its input; a multiplicative hash (Knuth, TAOCP vol. 3, 6.4) spreads it over the vocabulary.
        return ((checksum * 2654435761) >> 13) % self.vocab_size

    def _prompt_logprobs(self, sequence: _Sequence, start: int, end: int) -> tuple[TokenLogprobs, ...]:
        wanted = sequence.request.sampling.prompt_logprobs
        if wanted is None:
            return ()
        return tuple(
            self._logprobs(sequence.token_ids[position], self._likeliest(self._read(sequence, position)), wanted)
            for position in range(start + 1, min(end + 1, sequence.request.num_prompt_tokens))
        )

    def _logprobs(self, token_id: int, likeliest: int, count: int) -> TokenLogprobs:
        """As if the likeliest token had half of the probability, the id after it a quarter, and so on around."""
        best = [(likeliest + step) % self.vocab_size for step in range(min(count, self.vocab_size))]
        token_ids = (token_id, *best)
        ranks = tuple((each - likeliest) % self.vocab_size + 1 for each in token_ids)
        return TokenLogprobs(token_ids, tuple(-0.6931471805599453 * rank for rank in ranks), ranks)
