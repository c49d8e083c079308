"""What is made of a step's logits on a GPU: tokens, and log-probabilities where wanted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pagoda.core.step import TokenLogprobs
from pagoda.planning.cuda_step import WORD, chosen_bytes
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.runner.prepare import PreparedStep
from pagoda.runner.requests import PromptScores, Sampled, prompt_alternatives, sampling_states
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.cuda.logprobs import LaunchedLogprobs
from pagoda.sampling.cuda_sampler import CudaSampler


class ChosenTokens:
    """token_ids [most rows] int32, broken [most rows] bool: what the latest step chose, on the device; and a copy on the host.

    The next step reads them there; nothing overwrites them, or the copy, before the next step's own are chosen.
    """

    def __init__(self, queue: CudaQueue, max_rows: int) -> None:
        self._device = torch.zeros(chosen_bytes(max_rows), dtype=torch.uint8, device=queue.device)
        self._host = queue.host_memory(chosen_bytes(max_rows))
        self._copied = queue.event()
        self.token_ids, self.broken = _split(self._device, max_rows)
        self._host_token_ids, self._host_broken = _split(self._host, max_rows)

    @property
    def num_bytes(self) -> int:
        """Of the device's memory."""
        return self._device.nbytes

    def send(self) -> None:
        """Start the copy to the host, behind whatever was launched so far."""
        self._host.copy_(self._device, non_blocking=True)
        self._copied.record()

    def arrived(self, num_rows: int) -> tuple[list[int], list[bool]]:
        """Wait for the copy: token ids and broken, of the first rows."""
        self._copied.synchronize()
        return self._host_token_ids[:num_rows].tolist(), self._host_broken[:num_rows].tolist()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Log-probabilities of rows that sample, by their places among those."""

    places: list[int]
    launched: LaunchedLogprobs


class Choosing:
    """One step's choice. Its logits come in slices, by `take`; `sampled` and `prompt_scores` wait for the device."""

    def __init__(self, sampler: CudaSampler, chosen: ChosenTokens, prepared: PreparedStep) -> None:
        self._sampler, self._chosen, self._prepared = sampler, chosen, prepared
        self._states = sampling_states(prepared)
        self._rows: list[int] = prepared.sampling_logits.tolist()
        self._wanted: list[_Wanted] = []
        self._prompts: list[list[LaunchedLogprobs]] = [[] for _ in prepared.prompts]

    def take(self, first: int, logits: torch.Tensor) -> None:
        """The slice of logits [rows, vocabulary with padding] whose first row is number `first` of the step."""
        begin, end = bisect_left(self._rows, first), bisect_left(self._rows, first + len(logits))
        for run_begin, run_end in _runs(self._rows, begin, end):
            row = self._rows[run_begin] - first
            self._choose(run_begin, run_end, logits[row : row + run_end - run_begin])
        for number in range(len(self._prompts)):
            self._score(number, first, logits)

    def sampled(self) -> Sampled:
        token_ids, broken = self._chosen.arrived(len(self._rows))
        logprobs: dict[int, TokenLogprobs] = {}
        for wanted in self._wanted:
            logprobs.update(zip(wanted.places, wanted.launched.to_host(), strict=True))
        return Sampled(token_ids, broken, logprobs)

    def prompt_scores(self) -> list[PromptScores]:
        return [
            PromptScores(
                prompt,
                [flag for part in parts for flag in part.broken()],
                [entry for part in parts for entry in part.to_host()],
            )
            for prompt, parts in zip(self._prepared.prompts, self._prompts, strict=True)
        ]

    def _choose(self, begin: int, end: int, logits: torch.Tensor) -> None:
        """Tokens for the rows that sample from `begin` to `end`, whose logits these are."""
        states, token_ids = self._states[begin:end], self._chosen.token_ids[begin:end]
        self._sampler.launch(logits, SamplingBatch.of(states), token_ids, self._chosen.broken[begin:end])
        counts = {place: count for place, state in enumerate(states) if (count := state.params.logprobs) is not None}
        if counts:
            rows = np.array(list(counts), np.int64)
            launched = self._sampler.logprobs(logits, rows, token_ids, max(counts.values()))
            self._wanted.append(_Wanted([begin + place for place in counts], launched))

    def _score(self, number: int, first: int, logits: torch.Tensor) -> None:
        """Log-probabilities of as many of a prompt's tokens as this slice tells."""
        prompt = self._prepared.prompts[number]
        begin = max(0, first - prompt.first)
        end = min(len(prompt.token_ids), first + len(logits) - prompt.first)
        if begin >= end:
            return
        own = logits[begin + prompt.first - first : end + prompt.first - first]
        alternatives = prompt_alternatives(self._prepared, prompt)
        launched = self._sampler.logprobs(own, np.arange(end - begin), prompt.token_ids[begin:end], alternatives)
        self._prompts[number].append(launched)


def _runs(rows: Sequence[int], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut begin … end so that in each piece the rows are consecutive."""
    for place in range(begin + 1, end + 1):
        if place == end or rows[place] != rows[place - 1] + 1:
            yield begin, place
            begin = place


def _split(memory: torch.Tensor, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return memory[: num_rows * WORD].view(torch.int32), memory[num_rows * WORD :].view(torch.bool)
