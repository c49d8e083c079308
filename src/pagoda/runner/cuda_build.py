"""From a checkpoint to a CudaRunner: everything that it will ever need is allocated here."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from pagoda.errors import DoesNotFitError
from pagoda.loading.checkpoint import Checkpoint
from pagoda.models.family import Family
from pagoda.models.weights import load_model
from pagoda.ops.cuda.cache import allocate_cuda_kv
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.program import CudaModel, build_model
from pagoda.ops.cuda.weight_ops import CudaWeightOps
from pagoda.planning.cuda_step import table_width
from pagoda.planning.cuda_workspace import SPARE_BLOCKS, logit_slice_rows
from pagoda.planning.ledger import HeldBytes
from pagoda.planning.model_spec import ModelSpec
from pagoda.progress import Progress, silent
from pagoda.runner.cuda_buffers import StepBuffers
from pagoda.runner.cuda_choosing import ChosenTokens
from pagoda.runner.cuda_device import start_triton
from pagoda.runner.cuda_graphs import CudaGraphBackend, StepGraphs
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.runner.cuda_runner import CudaRunner
from pagoda.runner.device import Device
from pagoda.runner.prepare import InputBatch
from pagoda.sampling.cuda_sampler import CudaSampler

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}


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
    """Load the model, record its programs, allocate its KV cache and whatever steps need, and have its kernels compiled. The
    checkpoint may be closed afterwards.

    device: of kind "cuda". Where torch finds none, for tests, all of it runs on the CPU, in Triton's interpreter.
    max_model_len: the longest sequence. real_vocab_size: tokens that there really are.
    progress: told bytes of weights loaded.
    Raises what `load_model` and `start_triton` raise, and `DoesNotFitError` when the device's memory ends.
    """
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vocab_size = min(real_vocab_size, spec.vocab_size)
    if place.type == "cuda":
        start_triton()

    def load() -> tuple[CudaModel, int]:
        """The model, and bytes of its weights."""
        with CudaWeightOps(place, _DTYPES[device.dtype], device.quantization) as weights:
            model = load_model(
                checkpoint, family, spec, weights, lambda done, total: progress("loading weights", done, total)
            )
        # What loading took beside the weights is given back by now.
        cache = allocate_cuda_kv(spec, num_blocks + SPARE_BLOCKS, block_size, place, _DTYPES[device.kv_dtype])
        machine = Machine.of(place, _DTYPES[device.dtype], is_deterministic=device.is_deterministic)
        recorded = build_model(model.forward, cache, machine, max_tokens=max_batched_tokens, max_seqs=max_num_seqs)
        return recorded, weights.num_bytes

    def build() -> CudaRunner:
        model, weight_bytes = load()
        queue = CudaQueue(place)
        buffers = StepBuffers(
            queue,
            num_blocks=num_blocks,
            block_size=block_size,
            width=table_width(num_blocks, block_size, max_model_len),
            max_tokens=max_batched_tokens,
            max_seqs=max_num_seqs,
        )
        rows = logit_slice_rows(max_batched_tokens, max_num_seqs)
        runner = CudaRunner(
            model,
            InputBatch(num_blocks, block_size, max_num_seqs, vocab_size),
            queue,
            buffers=buffers,
            chosen=ChosenTokens(queue, buffers.rows[-1]),
            sampler=CudaSampler(place, rows, vocab_size, model.machine.multiprocessors),
            graphs=StepGraphs(CudaGraphBackend() if place.type == "cuda" else None),
            real_vocab_size=vocab_size,
            held=HeldBytes(weight_bytes, model.cache.num_bytes // (num_blocks + SPARE_BLOCKS) * num_blocks),
        )
        queue.finish()
        if place.type == "cuda":
            _in_a_thread(lambda: runner.warm_up(device.threads))
        return runner

    try:
        with torch.inference_mode():
            return build()
    except RuntimeError as error:
        # On the CPU torch has no class of its own for this.
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise DoesNotFitError(
            f"{checkpoint.name}: {device} ran out of memory while loading weights and {num_blocks:,} KV blocks; "
            "choose fewer num_kv_blocks, a smaller memory_fraction or a smaller model"
        ) from error


def _in_a_thread(work: Callable[[], None]) -> None:
    """In one that ends: then torch hands its BLAS library's handle and workspace on to the next one that needs them, the
    engine's, instead of making others there while somebody waits."""
    with ThreadPoolExecutor(1, "warm-up") as thread:
        thread.submit(work).result()
