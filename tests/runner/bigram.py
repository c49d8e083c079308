"""A model small enough to compute by hand: the next token depends on the last one, and on nothing else."""

from __future__ import annotations

import torch

from pagoda.models.family import Model
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import TorchBatch
from pagoda.ops.reference_cache import KVCache
from pagoda.ops.reference_weights import TorchWeight
from pagoda.runner.prepare import InputBatch
from pagoda.runner.torch_runner import TorchRunner

BLOCK_SIZE = 4
NUM_BLOCKS = 12


class Bigram(Model[TorchWeight]):
    """table [V, V with padding]: logits of what follows each token."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def forward(self, ops: TorchOps, batch: TorchBatch) -> torch.Tensor:
        return self.table[batch.input_ids[batch.logit_rows]]


def bigram_runner(table: torch.Tensor) -> TorchRunner:
    """Its cache has one layer with one number a position, which the model leaves alone."""
    shape = (NUM_BLOCKS, BLOCK_SIZE, 1, 1)
    cache = KVCache(BLOCK_SIZE, (torch.ones(shape),), (torch.ones(shape),))
    inputs = InputBatch(NUM_BLOCKS, BLOCK_SIZE, 4, len(table))
    return TorchRunner(Bigram(table), TorchOps(cache), inputs, torch.device("cpu"), len(table), weight_bytes=0)
