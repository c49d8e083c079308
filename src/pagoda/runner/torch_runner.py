"""TorchRunner: executes steps with torch, on the CPU or a GPU."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from pagoda.core.step import RunnerOutput, SchedulerOutput
from pagoda.errors import DoesNotFitError
from pagoda.loading.checkpoint import Checkpoint
from pagoda.models.family import Family, Model
from pagoda.models.weights import load_model
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import Tile, torch_batch, whole_groups
from pagoda.ops.reference_cache import allocate_kv
from pagoda.ops.reference_weights import TorchWeight, TorchWeightOps
from pagoda.planning.ledger import HeldBytes
from pagoda.planning.model_spec import ModelSpec
from pagoda.planning.workspace import attention_tile
from pagoda.progress import Progress, silent
from pagoda.runner.prepare import InputBatch, PreparedStep, PromptLogits
from pagoda.runner.requests import PromptScores, Sampled, prompt_alternatives, sampling_states, take_results
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.torch_logprobs import LogprobTensors, logprob_tensors
from pagoda.sampling.torch_sampler import broken_rows, sample


@dataclass(frozen=True, slots=True)
class _PromptLogprobs:
    """Of one row's prompt tokens, still on the device. broken [P]: where the logits are no numbers."""

    logits: PromptLogits
    broken: torch.Tensor
    logprobs: LogprobTensors


@dataclass(frozen=True, slots=True)
class _Launched:
    """A step whose results the device still works on. token_ids, broken [M]: of the rows that sample.

    logprobs: of the sampling rows `logprob_rows`, as many alternatives as any of them wants.
    """

    prepared: PreparedStep
    token_ids: torch.Tensor
    broken: torch.Tensor
    logprob_rows: tuple[int, ...]
    logprobs: LogprobTensors | None
    prompts: tuple[_PromptLogprobs, ...]


class TorchRunner:
    """A `Runner` over `TorchOps`.

    A step is started when it is submitted. Its tokens are brought to the host when it is collected, or earlier when the
    next step, which reads them, is submitted; on a GPU the scheduling of that next step overlaps with this one.
    """

    def __init__(
        self,
        model: Model[TorchWeight],
        ops: TorchOps,
        inputs: InputBatch,
        device: torch.device,
        real_vocab_size: int,
        *,
        weight_bytes: int,
        tile: Tile = whole_groups,
        widest_window: int | None = None,
    ) -> None:
        """real_vocab_size: tokens that there really are; what the embedding table has beyond them is padding.
        weight_bytes: what the model's weights take. tile: how much attention takes at once.
        widest_window: of all layers; None where some layer has none.
        """
        cache = ops.cache
        self.held = HeldBytes(weight_bytes, sum(tensor.nbytes for tensor in (*cache.keys, *cache.values)))
        self._model, self._ops, self._tile, self._widest_window = model, ops, tile, widest_window
        self._device, self._vocab_size = device, real_vocab_size
        self._inputs = inputs
        self._launched: _Launched | None = None
        self._collectable: deque[RunnerOutput | Exception] = deque()

    @torch.inference_mode()
    def submit(self, step: SchedulerOutput) -> None:
        self._settle()
        prepared = self._inputs.prepare(step)
        logits = self._forward(prepared)
        self._launched = self._sample(prepared, logits)

    def collect(self) -> RunnerOutput:
        if not self._collectable:
            self._settle()
        output = self._collectable.popleft()
        if isinstance(output, Exception):
            raise output
        return output

    def forget_all(self) -> None:
        self._inputs.forget_all()

    def lose_block(self, block_id: int) -> None:
        self._inputs.lose_block(block_id)

    def close(self) -> None:
        # Without references to them, weights and cache are freed.
        for name in ("_model", "_ops", "_launched"):
            vars(self).pop(name, None)
        if self._device.type == "cuda":  # torch keeps freed memory, which the next model's plan would not see
            torch.cuda.empty_cache()

    def _forward(self, prepared: PreparedStep) -> torch.Tensor:
        """Logits [rows of logits, vocabulary with padding], float32."""
        batch = torch_batch(
            prepared.batch,
            self._ops.cache.block_size,
            self._device,
            self._tile,
            widest_window=self._widest_window,
        )
        self._ops.cache.zero_blocks(batch.new_blocks)
        return self._model.forward(self._ops, batch)

    def _sample(self, prepared: PreparedStep, logits: torch.Tensor) -> _Launched:
        rows = torch.from_numpy(prepared.sampling_logits).to(self._device, non_blocking=True)
        states = sampling_states(prepared)
        own = logits if len(rows) == len(logits) else logits[rows]
        token_ids, broken = sample(own, SamplingBatch.of(states), self._vocab_size)
        counts = [state.params.logprobs for state in states]
        wanting = [place for place, count in enumerate(counts) if count is not None]
        logprobs = None
        if wanting:
            places = torch.tensor(wanting, device=self._device)
            most = max(count for count in counts if count is not None)
            logprobs = logprob_tensors(own, places, token_ids[places], most, self._vocab_size)
        prompts = tuple(self._prompt_logprobs(prepared, prompt, logits) for prompt in prepared.prompts)
        return _Launched(prepared, token_ids, broken, tuple(wanting), logprobs, prompts)

    def _prompt_logprobs(self, prepared: PreparedStep, prompt: PromptLogits, logits: torch.Tensor) -> _PromptLogprobs:
        own = logits[prompt.first : prompt.first + len(prompt.token_ids)]
        token_ids = torch.from_numpy(prompt.token_ids).to(self._device, non_blocking=True)
        alternatives = prompt_alternatives(prepared, prompt)
        places = torch.arange(len(own), device=self._device)
        logprobs = logprob_tensors(own, places, token_ids, alternatives, self._vocab_size)
        return _PromptLogprobs(prompt, broken_rows(own, self._vocab_size), logprobs)

    def _settle(self) -> None:
        """Bring the results of the step in flight, if there is one, to the host."""
        launched, self._launched = self._launched, None
        if launched is None:
            return
        try:
            self._collectable.append(self._results(launched))
        except Exception as error:
            # It belongs to that step, whichever call finds it.
            self._collectable.append(error)

    def _results(self, launched: _Launched) -> RunnerOutput:
        entries = launched.logprobs.to_host() if launched.logprobs is not None else []
        sampled = Sampled(
            launched.token_ids.tolist(),
            launched.broken.tolist(),
            dict(zip(launched.logprob_rows, entries, strict=True)),
        )
        prompts = [
            PromptScores(prompt.logits, prompt.broken.tolist(), prompt.logprobs.to_host())
            for prompt in launched.prompts
        ]
        return take_results(launched.prepared, sampled, prompts)


def build_torch_runner(
    checkpoint: Checkpoint,
    family: Family,
    spec: ModelSpec,
    *,
    device: str,
    dtype: str,
    num_blocks: int,
    block_size: int,
    max_num_seqs: int,
    real_vocab_size: int,
    progress: Progress = silent,
) -> TorchRunner:
    """Load the model and allocate its KV cache. The checkpoint may be closed afterwards.

    device: as torch names it ("cpu", "cuda"). dtype: "float32", "bfloat16" or "float16", of weights, activations and cache.
    real_vocab_size: tokens that there really are. progress: told bytes of weights loaded.
    Raises what `load_model` raises, and `DoesNotFitError` when the device's memory ends.
    """
    torch_device, torch_dtype = torch.device(device), _DTYPES[dtype]
    try:
        weights = TorchWeightOps(torch_device, torch_dtype)
        with torch.inference_mode():
            model = load_model(
                checkpoint,
                family,
                spec,
                weights,
                lambda done, total: progress("loading weights", done, total),
            )
            cache = allocate_kv(spec, num_blocks, block_size, torch_device, torch_dtype)
    except RuntimeError as error:
        # On the CPU torch has no class of its own for this.
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise DoesNotFitError(
            f"{checkpoint.name}: {device} ran out of memory while loading weights and {num_blocks:,} KV blocks; "
            "choose fewer num_kv_blocks, a smaller memory_fraction or a smaller model"
        ) from error
    vocab_size = min(real_vocab_size, spec.vocab_size)
    inputs = InputBatch(num_blocks, block_size, max_num_seqs, vocab_size)

    def tile(num_rows: int, num_queries: int, context: int) -> tuple[int, int]:
        size = torch_dtype.itemsize
        return attention_tile(spec, num_rows=num_rows, num_queries=num_queries, context=context, element_bytes=size)

    ops = TorchOps(cache)
    return TorchRunner(
        model,
        ops,
        inputs,
        torch_device,
        vocab_size,
        weight_bytes=weights.num_bytes,
        tile=tile,
        widest_window=spec.widest_window,
    )


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
