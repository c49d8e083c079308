"""NativeRunner: executes steps with the native kernels. A step's forward pass is one call that releases the GIL."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

import numpy as np
import numpy.typing as npt

from pagoda import _native
from pagoda.core.step import RunnerOutput, SchedulerOutput, TokenLogprobs
from pagoda.errors import DoesNotFitError
from pagoda.loading.checkpoint import Checkpoint
from pagoda.models.family import Family
from pagoda.models.weights import load_model
from pagoda.ops.cpu_program import NativeModel, build_program
from pagoda.ops.cpu_weights import CpuWeightOps
from pagoda.planning.ledger import HeldBytes
from pagoda.planning.model_spec import ModelSpec
from pagoda.progress import Progress, silent
from pagoda.runner.native_threads import start_threads
from pagoda.runner.prepare import InputBatch, PreparedStep
from pagoda.runner.requests import PromptScores, Sampled, prompt_alternatives, sampling_states, take_results
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.native_sampler import broken_rows, sample, token_logprobs
from pagoda.sampling.state import SamplingState

Float32 = npt.NDArray[np.float32]


class NativeRunner:
    """A `Runner` over a native program. A step is over when it has been submitted."""

    def __init__(
        self,
        model: NativeModel,
        threads: _native.Threads,
        inputs: InputBatch,
        real_vocab_size: int,
        weight_bytes: int,
    ) -> None:
        """real_vocab_size: tokens that there really are; what the embedding table has beyond them is padding.
        weight_bytes: what the model's weights take.
        """
        self.held = HeldBytes(weight_bytes, model.cache.num_bytes)
        self._model, self._threads, self._vocab_size = model, threads, real_vocab_size
        self._inputs = inputs
        self._done: deque[RunnerOutput] = deque()

    def submit(self, step: SchedulerOutput) -> None:
        prepared = self._inputs.prepare(step)
        choosing = _Choosing(self._threads, self._vocab_size, prepared)
        batch, program, slice_rows = prepared.batch, self._model.program, self._model.max_logit_rows
        logits = program.run(
            batch.input_ids,
            batch.positions,
            batch.slot_mapping,
            batch.query_start_loc,
            batch.seq_lens,
            batch.block_table,
            batch.logit_rows,
            batch.new_blocks,
        )
        choosing.take(0, logits)
        for first in range(slice_rows, len(batch.logit_rows), slice_rows):
            choosing.take(first, program.logits(first))  # overwrites the slice before
        self._done.append(take_results(prepared, choosing.sampled, choosing.prompt_scores()))

    def collect(self) -> RunnerOutput:
        return self._done.popleft()

    def forget_all(self) -> None:
        self._inputs.forget_all()

    def lose_block(self, block_id: int) -> None:
        self._inputs.lose_block(block_id)

    def close(self) -> None:
        # Without references to them, weights and cache are freed.
        vars(self).pop("_model", None)
        self._threads.close()


class _Choosing:
    """What is made of one step's logits, which come in slices: tokens, and log-probabilities where wanted."""

    def __init__(self, threads: _native.Threads, vocab_size: int, prepared: PreparedStep) -> None:
        self._threads, self._vocab_size, self._prepared = threads, vocab_size, prepared
        self._states = sampling_states(prepared)
        self._rows: list[int] = prepared.sampling_logits.tolist()
        self._prompt_broken: list[list[bool]] = [[] for _ in prepared.prompts]
        self._prompt_logprobs: list[list[TokenLogprobs]] = [[] for _ in prepared.prompts]
        self._token_ids: list[int] = []
        self._broken: list[bool] = []
        self._logprobs: dict[int, TokenLogprobs] = {}

    @property
    def sampled(self) -> Sampled:
        return Sampled(self._token_ids, self._broken, self._logprobs)

    def prompt_scores(self) -> list[PromptScores]:
        scores = zip(self._prepared.prompts, self._prompt_broken, self._prompt_logprobs, strict=True)
        return [PromptScores(logits, broken, logprobs) for logits, broken, logprobs in scores]

    def take(self, first: int, logits: Float32) -> None:
        """The slice of logits [rows, vocabulary with padding] whose first row is number `first` of the step."""
        begin, end = bisect_left(self._rows, first), bisect_left(self._rows, first + len(logits))
        if end - begin == len(logits):
            self._choose(begin, logits, self._states[begin:end])
        elif begin < end:
            rows = [row - first for row in self._rows[begin:end]]
            self._choose(begin, logits[rows], self._states[begin:end])
        for number in range(len(self._prepared.prompts)):
            self._score(number, first, logits)

    def _choose(self, begin: int, logits: Float32, states: list[SamplingState]) -> None:
        """Tokens for consecutive sampling rows, of which `begin` is the first; logits and states are theirs."""
        token_ids, broken = sample(self._threads, logits, SamplingBatch.of(states), self._vocab_size)
        self._token_ids += token_ids.tolist()
        self._broken += broken.tolist()
        wanted = {place: count for place, state in enumerate(states) if (count := state.params.logprobs) is not None}
        if wanted:
            places = np.array(list(wanted), np.int64)
            most = max(wanted.values())
            entries = token_logprobs(self._threads, logits, self._vocab_size, places, token_ids[places], most)
            self._logprobs.update(zip((begin + place for place in wanted), entries, strict=True))

    def _score(self, number: int, first: int, logits: Float32) -> None:
        """Log-probabilities of as many of a prompt's tokens as this slice tells."""
        prompt = self._prepared.prompts[number]
        begin = max(0, first - prompt.first)
        end = min(len(prompt.token_ids), first + len(logits) - prompt.first)
        if begin >= end:
            return
        own = logits[begin + prompt.first - first : end + prompt.first - first]
        alternatives = prompt_alternatives(self._prepared, prompt)
        self._prompt_logprobs[number] += token_logprobs(
            self._threads, own, self._vocab_size, np.arange(end - begin), prompt.token_ids[begin:end], alternatives
        )
        self._prompt_broken[number] += broken_rows(own, self._vocab_size).tolist()


def build_native_runner(
    checkpoint: Checkpoint,
    family: Family,
    spec: ModelSpec,
    *,
    threads: int,
    instruction_set: str,
    quantization: str | None,
    kv_dtype: str,
    num_blocks: int,
    block_size: int,
    max_num_seqs: int,
    max_batched_tokens: int,
    real_vocab_size: int,
    progress: Progress = silent,
) -> NativeRunner:
    """Load the model, record its program and allocate its KV cache. The checkpoint may be closed afterwards.

    quantization: None, "int8" or "int4". kv_dtype: of the cache, "bfloat16" or "int8". real_vocab_size: tokens that there
    really are. progress: told bytes of weights loaded. Raises what `load_model` and `start_threads` raise, and
    `DoesNotFitError` when memory ends.
    """
    workers = start_threads(threads, instruction_set)
    try:
        weights = CpuWeightOps(workers, quantization)
        model = load_model(
            checkpoint,
            family,
            spec,
            weights,
            lambda done, total: progress("loading weights", done, total),
        )
        native = build_program(
            model.forward,
            spec,
            workers,
            kv_dtype=kv_dtype,
            num_blocks=num_blocks,
            block_size=block_size,
            max_tokens=max_batched_tokens,
            max_seqs=max_num_seqs,
        )
    except BaseException as error:
        workers.close()
        if not isinstance(error, MemoryError):
            raise
        raise DoesNotFitError(
            f"{checkpoint.name}: memory ended while loading weights and {num_blocks:,} KV blocks; "
            "choose fewer num_kv_blocks, a smaller memory_fraction or a smaller model"
        ) from error
    vocab_size = min(real_vocab_size, spec.vocab_size)
    inputs = InputBatch(num_blocks, block_size, max_num_seqs, vocab_size)
    return NativeRunner(native, workers, inputs, vocab_size, weights.num_bytes)
