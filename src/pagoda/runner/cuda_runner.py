"""CudaRunner: executes steps on a GPU, each prepared and launched while the one before still runs."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from pagoda.core.step import RunnerOutput, SchedulerOutput
from pagoda.errors import DoesNotFitError
from pagoda.loading.checkpoint import Checkpoint
from pagoda.models.family import Family
from pagoda.models.weights import load_model
from pagoda.ops.cuda.cache import allocate_cuda_kv
from pagoda.ops.cuda.clear import BlockClearer
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.program import CudaModel, build_model
from pagoda.ops.cuda.weight_ops import CudaWeightOps
from pagoda.planning.cuda_step import table_width
from pagoda.planning.cuda_workspace import SPARE_BLOCKS, logit_slice_rows
from pagoda.planning.ledger import HeldBytes
from pagoda.planning.model_spec import ModelSpec
from pagoda.progress import Progress, silent
from pagoda.runner.batch import Batch
from pagoda.runner.cuda_buffers import SentStep, StepBuffers
from pagoda.runner.cuda_choosing import Choosing, ChosenTokens
from pagoda.runner.cuda_graphs import CudaGraphBackend, StepGraphs
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.runner.cuda_warm_up import padding_step, sampling_batches, warm_up
from pagoda.runner.device import Device
from pagoda.runner.prepare import InputBatch, PreparedStep
from pagoda.runner.requests import take_results
from pagoda.sampling.cuda_sampler import CudaSampler


@dataclass(frozen=True, slots=True)
class _Launched:
    """A step that is wholly launched, whose results the device still works on."""

    prepared: PreparedStep
    choosing: Choosing
    is_decode: bool


class CudaRunner:
    """A `Runner` over a `CudaModel`, whose cache has a block more than requests get.

    When a step is submitted, its forward pass is launched at once: what the step before chose is fed to it on the device.
    Then the results of that step come to the host, while the device is at work already; and with them, which penalties and
    random numbers depend on, the choice of the new step's tokens is launched. The host waits for nothing else.
    graphs: those of decode steps.
    """

    def __init__(
        self,
        model: CudaModel,
        inputs: InputBatch,
        queue: CudaQueue,
        *,
        buffers: StepBuffers,
        chosen: ChosenTokens,
        sampler: CudaSampler,
        graphs: StepGraphs,
        real_vocab_size: int,
        held: HeldBytes,
    ) -> None:
        """real_vocab_size: tokens that there really are; what the embedding table has beyond them is padding.
        held: what weights and requests' KV blocks take.
        """
        self.held, self.graphs = held, graphs
        self._model, self._inputs, self._queue, self._vocab_size = model, inputs, queue, real_vocab_size
        self._buffers, self._chosen, self._sampler = buffers, chosen, sampler
        self._clearer = BlockClearer(model.cache)
        self._launched: _Launched | None = None
        self._collectable: deque[RunnerOutput | Exception] = deque()

    @torch.inference_mode()
    def submit(self, step: SchedulerOutput) -> None:
        with self._queue.entered():
            prepared = self._inputs.prepare(step)
            sent = self._compute(prepared.batch)
            self._settle(prepared if sent.step.is_decode else None)
            self._launched = self._choose(prepared, sent)

    @torch.inference_mode()
    def collect(self) -> RunnerOutput:
        if not self._collectable:
            with self._queue.entered():
                self._settle(None if self._launched is None else self._launched.prepared)
        output = self._collectable.popleft()
        if isinstance(output, Exception):
            raise output
        return output

    @torch.inference_mode()
    def warm_up(self, num_threads: int) -> None:
        """See `warm_up`; and capture the smallest step, since torch takes memory for a first graph. Not while a step is in
        flight."""
        warm_up(self._run_padding, self._buffers, self._queue, num_threads)
        buffers = self._buffers
        with self._queue.entered():
            self._compute(padding_step([1] * buffers.rows[0], buffers.spare_block, buffers.block_size))
            self.graphs.capture_one()
        self._queue.finish()

    def forget_all(self) -> None:
        self._inputs.forget_all()

    def lose_block(self, block_id: int) -> None:
        self._inputs.lose_block(block_id)

    def close(self) -> None:
        if "_model" not in vars(self):
            return
        self._queue.finish()
        self.graphs.close()
        # Without references to them, weights, cache and buffers are freed.
        for name in ("_model", "_buffers", "_chosen", "_sampler", "_clearer", "_launched"):
            del vars(self)[name]
        if self._queue.device.type == "cuda":  # torch keeps freed memory, which the next model's plan would not see
            torch.cuda.empty_cache()

    def _compute(self, batch: Batch) -> SentStep:
        """Launch the forward pass, up to the first slice of its logits."""
        sent = self._buffers.send(batch)
        if sent.new_blocks is not None:
            self._clearer.clear(sent.new_blocks)
        run = partial(self._run, sent)
        if sent.step.is_decode:
            self.graphs.run(sent.step.num_seqs, run)
        else:
            run()
        return sent

    def _run(self, sent: SentStep) -> None:
        self._buffers.feed(sent, self._chosen.token_ids, self._vocab_size)
        self._model.program_for(sent.step).run(sent.step)

    def _run_padding(self, batch: Batch) -> None:
        """Launch all that a step may need, of a step that is padding alone."""
        sent = self._buffers.send(batch)
        if sent.new_blocks is not None:
            self._clearer.clear(sent.new_blocks)
        self._run(sent)
        logits = self._model.program_for(sent.step).first_logits(sent.step)
        token_ids, broken, row = self._chosen.token_ids[:1], self._chosen.broken[:1], np.zeros(1, np.int64)
        # The second row too: with an odd vocabulary it does not begin at a multiple of 16 bytes, of which Triton makes a
        # kernel of its own.
        for first in range(min(2, len(logits))):
            for sampling in sampling_batches():
                self._sampler.launch(logits[first : first + 1], sampling, token_ids, broken)
            for tokens in (token_ids, row):
                self._sampler.logprobs(logits[first : first + 1], row, tokens, 1)

    def _choose(self, prepared: PreparedStep, sent: SentStep) -> _Launched:
        """Launch the choice of tokens, slice by slice of the logits."""
        choosing = Choosing(self._sampler, self._chosen, prepared)
        program, rows = self._model.program_for(sent.step), len(prepared.batch.logit_rows)
        logits = program.first_logits(sent.step)
        choosing.take(0, logits[:rows])
        for first in range(len(logits), rows, max(len(logits), 1)):
            choosing.take(first, program.logits(sent.step, first)[: rows - first])  # overwrites the slice before
        self._chosen.send()
        return _Launched(prepared, choosing, sent.step.is_decode)

    def _settle(self, latest: PreparedStep | None) -> None:
        """Bring the results of the step in flight, if there is one, to the host.

        latest: the step launched last, where that is a decode step.
        """
        launched, self._launched = self._launched, None
        if launched is None:
            return
        if self.graphs.has_more and launched.is_decode and latest is not None:
            self._capture(launched.prepared, latest)
        try:
            sampled, prompts = launched.choosing.sampled(), launched.choosing.prompt_scores()
            self._collectable.append(take_results(launched.prepared, sampled, prompts))
        except Exception as error:
            # It belongs to that step, whichever call finds it.
            self._collectable.append(error)

    def _capture(self, *in_flight: PreparedStep) -> None:
        """As the device is at work, there is time to capture a graph, unless somebody waits for a first token."""
        if not any(map(_chooses_first_token, in_flight)):
            self.graphs.capture_one()


def _chooses_first_token(prepared: PreparedStep) -> bool:
    shares = zip(prepared.running, prepared.batch.seq_lens.tolist(), strict=True)
    return any(end <= request.num_prompt_tokens for request, end in shares)


def build_cuda_runner(
    checkpoint: Checkpoint,
    family: Family,
    spec: ModelSpec,
    *,
    device: Device,
    num_blocks: int,
    block_size: int,
    max_num_seqs: int,
    max_batched_tokens: int,
    max_model_len: int,
    real_vocab_size: int,
    progress: Progress = silent,
) -> CudaRunner:
    """Load the model, record its programs, and allocate its KV cache and whatever steps need. The checkpoint may be closed
    afterwards.

    device: of kind "cuda". Where torch finds none, for tests, all of it runs on the CPU, in Triton's interpreter.
    max_model_len: the longest sequence. real_vocab_size: tokens that there really are.
    progress: told bytes of weights loaded.
    Raises what `load_model` raises, and `DoesNotFitError` when the device's memory ends.
    """
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype, vocab_size = _DTYPES[device.dtype], min(real_vocab_size, spec.vocab_size)
    try:
        with torch.inference_mode():
            with CudaWeightOps(place, dtype, device.quantization) as weights:
                model = load_model(
                    checkpoint, family, spec, weights, lambda done, total: progress("loading weights", done, total)
                )
            cache = allocate_cuda_kv(spec, num_blocks + SPARE_BLOCKS, block_size, place, _DTYPES[device.kv_dtype])
            machine = Machine.of(place, dtype, is_deterministic=device.is_deterministic)
            recorded = build_model(model.forward, cache, machine, max_tokens=max_batched_tokens, max_seqs=max_num_seqs)
            queue = CudaQueue(place)
            buffers = StepBuffers(
                queue,
                num_blocks=num_blocks,
                block_size=block_size,
                width=table_width(num_blocks, block_size, max_model_len),
                max_tokens=max_batched_tokens,
                max_seqs=max_num_seqs,
            )
            chosen = ChosenTokens(queue, buffers.rows[-1])
            rows = logit_slice_rows(max_batched_tokens, max_num_seqs)
            sampler = CudaSampler(place, rows, vocab_size, machine.multiprocessors)
            queue.finish()
    except RuntimeError as error:
        # On the CPU torch has no class of its own for this.
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise DoesNotFitError(
            f"{checkpoint.name}: {device} ran out of memory while loading weights and {num_blocks:,} KV blocks; "
            "choose fewer num_kv_blocks, a smaller memory_fraction or a smaller model"
        ) from error
    runner = CudaRunner(
        recorded,
        InputBatch(num_blocks, block_size, max_num_seqs, vocab_size),
        queue,
        buffers=buffers,
        chosen=chosen,
        sampler=sampler,
        graphs=StepGraphs(CudaGraphBackend() if place.type == "cuda" else None),
        real_vocab_size=vocab_size,
        held=HeldBytes(weights.num_bytes, cache.num_bytes // (num_blocks + SPARE_BLOCKS) * num_blocks),
    )
    if place.type == "cuda":
        # In a thread that ends: then torch hands its BLAS library's handle and workspace on to the next one that needs them,
        # the engine's, instead of making others there while somebody waits.
        with ThreadPoolExecutor(1, "warm-up") as thread:
            thread.submit(runner.warm_up, device.threads).result()
    return runner


_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}
