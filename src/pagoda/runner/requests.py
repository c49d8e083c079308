"""RunningRequests: what every runner keeps of the requests that run, and how results are put together. No device, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagoda.core.step import RequestKey, RowResult, RunnerOutput, SchedulerOutput, TokenLogprobs
from pagoda.runner.prepare import InputBatch, PreparedStep, PromptLogits
from pagoda.sampling.state import SamplingState


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was chosen, on the host.

    token_ids, broken [M]: of the rows that sample; broken where the logits are no numbers. logprobs: by place among
    those rows, of those that want any; each may have more alternatives than its row wants.
    """

    token_ids: Sequence[int]
    broken: Sequence[bool]
    logprobs: Mapping[int, TokenLogprobs]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Log-probabilities of one row's prompt tokens, on the host. broken [P]: where the logits are no numbers."""

    logits: PromptLogits
    broken: Sequence[bool]
    logprobs: Sequence[TokenLogprobs]


class RunningRequests:
    """Tokens and blocks (`inputs`), sampling states, and which requests have failed."""

    def __init__(self, inputs: InputBatch, vocab_size: int) -> None:
        """vocab_size: tokens that there really are."""
        self._inputs, self._vocab_size = inputs, vocab_size
        self._states: dict[RequestKey, SamplingState] = {}
        self._failed: dict[RequestKey, str] = {}

    def prepare(self, step: SchedulerOutput) -> PreparedStep:
        """Forget, add, and lay out the step's rows. Raises `InvariantError`."""
        for key in step.dropped:
            self._states.pop(key, None)
            self._failed.pop(key, None)
        for request in step.new:
            self._states[request.key] = SamplingState(request, self._vocab_size)
        return self._inputs.prepare(step)

    def forget_all(self) -> None:
        self._inputs.forget_all()
        self._states.clear()
        self._failed.clear()

    def lose_block(self, block_id: int) -> None:
        """See `LoadedRunner.lose_block`."""
        self._inputs.lose_block(block_id)

    def sampling_states(self, prepared: PreparedStep) -> list[SamplingState]:
        """Of the rows that sample, in their order."""
        return [self._states[prepared.keys[row]] for row in prepared.sampling_rows.tolist()]

    def prompt_alternatives(self, prepared: PreparedStep, prompt: PromptLogits) -> int:
        """How many alternatives each prompt token's log-probabilities are to have."""
        return self._states[prepared.keys[prompt.row]].params.prompt_logprobs or 0

    def results(self, prepared: PreparedStep, sampled: Sampled, prompts: Sequence[PromptScores]) -> RunnerOutput:
        """Take in what the step chose, and tell it."""
        keys = prepared.keys
        scores = {prompt.logits.row: self._checked(keys[prompt.logits.row], prompt) for prompt in prompts}
        places = {row: place for place, row in enumerate(prepared.sampling_rows.tolist())}
        results = []
        for row, key in enumerate(keys):
            place, token_id, logprobs = places.get(row), None, None
            if place is not None:
                if sampled.broken[place]:
                    self._fail(key, int(prepared.batch.seq_lens[row]))
                # A failed request may already be scheduled again, so it goes on, with whatever token, until it is dropped.
                token_id = sampled.token_ids[place]
                self._inputs.append(key, token_id)
                self._states[key].append(token_id)
                if place in sampled.logprobs:
                    logprobs = self._trimmed(key, sampled.logprobs[place])
            results.append(RowResult(key, token_id, logprobs, scores.get(row, ())))
        if self._failed:
            failed = self._failed
            results = [RowResult(row.key, error=failed[row.key]) if row.key in failed else row for row in results]
        return RunnerOutput(prepared.step, tuple(results))

    def _checked(self, key: RequestKey, prompt: PromptScores) -> tuple[TokenLogprobs, ...]:
        if any(prompt.broken):
            self._fail(key, prompt.logits.position + list(prompt.broken).index(True))
        return tuple(prompt.logprobs)

    def _trimmed(self, key: RequestKey, entry: TokenLogprobs) -> TokenLogprobs:
        """With as many alternatives as the request wants."""
        end = 1 + (self._states[key].params.logprobs or 0)
        if end >= len(entry.token_ids):
            return entry
        return TokenLogprobs(entry.token_ids[:end], entry.logprobs[:end], entry.ranks[:end])

    def _fail(self, key: RequestKey, position: int) -> None:
        self._failed.setdefault(
            key,
            f"the model's logits for the token at position {position:,} are not numbers (NaN or infinite); "
            "its weights are damaged, or the number format overflows",
        )
