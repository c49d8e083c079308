"""How a step's results are put together. No device, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagoda.core.step import RowResult, RunnerOutput, TokenLogprobs
from pagoda.runner.prepare import PreparedStep, PromptLogits, Running
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


def sampling_states(prepared: PreparedStep) -> list[SamplingState]:
    """Of the rows that sample, in their order; once the results of the steps before have been taken in."""
    return [prepared.running[row].sampling for row in prepared.sampling_rows.tolist()]


def prompt_alternatives(prepared: PreparedStep, prompt: PromptLogits) -> int:
    """How many alternatives each prompt token's log-probabilities are to have."""
    return prepared.running[prompt.row].sampling.params.prompt_logprobs or 0


def take_results(prepared: PreparedStep, sampled: Sampled, prompts: Sequence[PromptScores]) -> RunnerOutput:
    """Take in what the step chose, and tell it."""
    scores = {prompt.logits.row: _checked(prepared.running[prompt.logits.row], prompt) for prompt in prompts}
    places = {row: place for place, row in enumerate(prepared.sampling_rows.tolist())}
    ends = prepared.batch.seq_lens.tolist()
    results = []
    for row, (key, request) in enumerate(zip(prepared.keys, prepared.running, strict=True)):
        place, token_id, logprobs = places.get(row), None, None
        if place is not None:
            if sampled.broken[place]:
                _fail(request, ends[row])
            # A failed request may already be scheduled again, so it goes on, with whatever token, until it is dropped.
            token_id = sampled.token_ids[place]
            request.arrived(ends[row], token_id)
            if place in sampled.logprobs:
                logprobs = _trimmed(sampled.logprobs[place], request.sampling.params.logprobs or 0)
        if request.error is None:
            results.append(RowResult(key, token_id, logprobs, scores.get(row, ())))
        else:
            results.append(RowResult(key, error=request.error))
    return RunnerOutput(prepared.step, tuple(results))


def _checked(request: Running, prompt: PromptScores) -> tuple[TokenLogprobs, ...]:
    if any(prompt.broken):
        _fail(request, prompt.logits.position + list(prompt.broken).index(True))
    return tuple(prompt.logprobs)


def _trimmed(entry: TokenLogprobs, alternatives: int) -> TokenLogprobs:
    """With as many alternatives as the request wants."""
    end = 1 + alternatives
    if end >= len(entry.token_ids):
        return entry
    return TokenLogprobs(entry.token_ids[:end], entry.logprobs[:end], entry.ranks[:end])


def _fail(request: Running, position: int) -> None:
    request.error = request.error or (
        f"the model's logits for the token at position {position:,} are not numbers (NaN or infinite); "
        "its weights are damaged, or the number format overflows"
    )
