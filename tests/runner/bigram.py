"""A model small enough to compute by hand: the next token depends on the last one, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from pagoda.models.family import Model
from pagoda.ops.cuda.cache import CudaKVCache, LayerKV
from pagoda.ops.cuda.step import CudaStep
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import TorchBatch
from pagoda.ops.reference_cache import KVCache
from pagoda.ops.reference_weights import TorchWeight
from pagoda.planning.ledger import HeldBytes
from pagoda.runner.cuda_buffers import StepBuffers
from pagoda.runner.cuda_choosing import ChosenTokens
from pagoda.runner.cuda_graphs import GraphBackend, StepGraphs
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.runner.cuda_runner import CudaRunner
from pagoda.runner.interface import LoadedRunner
from pagoda.runner.prepare import InputBatch
from pagoda.runner.torch_runner import TorchRunner
from pagoda.sampling.cuda_sampler import CudaSampler

BLOCK_SIZE = 4
NUM_BLOCKS = 12
MAX_SEQS = 4
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Bigram(Model[TorchWeight]):
    """table [V, V with padding]: logits of what follows each token."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def forward(self, ops: TorchOps, batch: TorchBatch) -> torch.Tensor:
        return self.table[batch.input_ids[batch.logit_rows]]


class BigramProgram:
    """The same in the GPU's path. slice_rows: how many rows of logits there are at once.

    slots: of each step so far, where its tokens' K and V were to go.
    """

    def __init__(self, table: torch.Tensor, slice_rows: int) -> None:
        self.table, self.slice = table, torch.zeros(slice_rows, table.shape[1], device=table.device)
        self.slots: list[list[int]] = []

    def run(self, step: CudaStep) -> torch.Tensor:
        self.slots.append(step.slot_mapping.tolist())
        return self.logits(step, 0)

    def logits(self, step: CudaStep, first: int) -> torch.Tensor:
        token_ids = step.input_ids[step.logit_rows[first : first + len(self.slice)]]
        return torch.index_select(self.table, 0, token_ids, out=self.slice[: len(token_ids)])

    def first_logits(self, step: CudaStep) -> torch.Tensor:
        return self.slice[: len(step.logit_rows)]


def bigram_runner(table: torch.Tensor) -> TorchRunner:
    """Its cache has one layer with one number a position, which the model leaves alone."""
    shape = (NUM_BLOCKS, BLOCK_SIZE, 1, 1)
    cache = KVCache(BLOCK_SIZE, (torch.ones(shape),), (torch.ones(shape),))
    inputs = InputBatch(NUM_BLOCKS, BLOCK_SIZE, MAX_SEQS, len(table))
    return TorchRunner(Bigram(table), TorchOps(cache), inputs, torch.device("cpu"), len(table), weight_bytes=0)


def cuda_bigram_runner(
    table: torch.Tensor,
    *,
    slice_rows: int = 2,
    num_blocks: int = NUM_BLOCKS,
    block_size: int = BLOCK_SIZE,
    max_tokens: int = 16,
    max_seqs: int = MAX_SEQS,
    backend: GraphBackend | None = None,
    queue: CudaQueue | None = None,
    sampler: Any = None,
) -> tuple[CudaRunner, BigramProgram]:
    storage = torch.ones(2 * (num_blocks + 1) * block_size, device=DEVICE)
    layer = LayerKV(*(half.view(num_blocks + 1, 1, block_size, 1) for half in storage.chunk(2)))
    program, queue = BigramProgram(table.to(DEVICE), slice_rows), queue or CudaQueue(DEVICE)
    model: Any = SimpleNamespace(cache=CudaKVCache(block_size, storage, [layer]), program_for=lambda step: program)
    limits = {"num_blocks": num_blocks, "width": num_blocks, "max_tokens": max_tokens, "max_seqs": max_seqs}
    runner = CudaRunner(
        model,
        InputBatch(num_blocks, block_size, max_seqs, len(table)),
        queue,
        buffers=StepBuffers(queue, block_size=block_size, **limits),
        chosen=ChosenTokens(queue, min(max_seqs, max_tokens)),
        sampler=sampler or CudaSampler(DEVICE, slice_rows, len(table), 4),
        graphs=StepGraphs(backend),
        real_vocab_size=len(table),
        held=HeldBytes(0, storage.nbytes),
    )
    queue.finish()
    return runner, program


@dataclass
class BigramRunners:
    """Runners of one kind over bigram tables, which must all behave alike. kind: "torch" or "cuda"."""

    kind: str

    def __call__(self, table: torch.Tensor) -> LoadedRunner:
        return bigram_runner(table) if self.kind == "torch" else cuda_bigram_runner(table)[0]

    def block_sums(self, runner: Any) -> list[list[float]]:
        """Of K and of V, what is in each block that requests get."""
        if self.kind == "torch":
            tensors = (*runner._ops.cache.keys, *runner._ops.cache.values)
        else:
            tensors = runner._model.cache.layers[0]
        return [tensor.sum(dim=(1, 2, 3)).tolist()[:NUM_BLOCKS] for tensor in tensors]
