"""CudaRunner: executes steps on a GPU, each prepared and launched while the one before still runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from pagoda.core.step import RunnerOutput, SchedulerOutput
from pagoda.ops.cuda.clear import BlockClearer
from pagoda.ops.cuda.program import CudaModel
from pagoda.planning.ledger import HeldBytes
from pagoda.runner.batch import Batch
from pagoda.runner.cuda_buffers import SentStep, StepBuffers
from pagoda.runner.cuda_choosing import Choosing, ChosenTokens
from pagoda.runner.cuda_graphs import StepGraphs
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.runner.cuda_warm_up import padding_step, sampling_batches, warm_up
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
