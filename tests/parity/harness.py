"""Runs a model over hand-made steps: what a scheduler and runner would do, reduced to the forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from pagoda.loading.checkpoint import Checkpoint
from pagoda.models.family import Model
from pagoda.models.registry import family_for
from pagoda.models.weights import load_model
from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import torch_batch
from pagoda.ops.reference_cache import allocate_kv
from pagoda.ops.reference_weights import TorchWeight, TorchWeightOps
from pagoda.planning.model_spec import ModelSpec
from pagoda.runner.batch import Batch

BLOCK_SIZE = 16
CPU = torch.device("cpu")


@dataclass
class Loaded:
    spec: ModelSpec
    model: Model[TorchWeight]


def load(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> Loaded:
    family = family_for(checkpoint.config)
    spec = family.spec(checkpoint.config)
    return Loaded(spec, load_model(checkpoint, family, spec, TorchWeightOps(CPU, dtype)))


class Sequences(ABC):
    """A batch of sequences over one paged cache, whose blocks are dealt out in shuffled order."""

    def __init__(self, sequences: list[list[int]], max_len: int):
        per_sequence = -(-max_len // BLOCK_SIZE)
        self.num_blocks = len(sequences) * per_sequence
        self.table = np.random.default_rng(0).permutation(self.num_blocks).reshape(len(sequences), per_sequence)
        self.sequences = [list(sequence) for sequence in sequences]
        self.computed = [0] * len(sequences)

    @abstractmethod
    def run(self, batch: Batch) -> np.ndarray:
        """The logits of one step, [rows, vocab]."""

    def step(self, shares: dict[int, int]) -> dict[int, np.ndarray]:
        """Compute so many further tokens of each sequence named; its logits at each of them, [tokens, vocab]."""
        rows = sorted(shares)
        spans = [(self.computed[row], self.computed[row] + shares[row]) for row in rows]
        positions = np.concatenate([np.arange(*span) for span in spans])
        owner = np.repeat(rows, [shares[row] for row in rows])
        tokens = [
            token for row, (start, end) in zip(rows, spans, strict=True) for token in self.sequences[row][start:end]
        ]
        ends = np.array([end for _, end in spans])
        width = -(-int(ends.max()) // BLOCK_SIZE)
        table = np.where(np.arange(width) * BLOCK_SIZE < ends[:, None], self.table[rows, :width], 0)
        starts = np.concatenate([[0], np.cumsum([shares[row] for row in rows])])
        batch = Batch(
            input_ids=np.array(tokens, dtype=np.int64),
            positions=positions.astype(np.int64),
            slot_mapping=self.table[owner, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
            query_start_loc=starts.astype(np.int32),
            seq_lens=ends.astype(np.int32),
            block_table=table.astype(np.int32),
            logit_rows=np.arange(len(tokens)),
            new_blocks=np.zeros(0, dtype=np.int64),
        )
        logits = self.run(batch)
        for row, (_, end) in zip(rows, spans, strict=True):
            self.computed[row] = end
        return {row: logits[start:end] for row, start, end in zip(rows, starts[:-1], starts[1:], strict=True)}

    def prefill(self, chunk: int) -> list[np.ndarray]:
        """Logits at every token of every sequence, at most `chunk` tokens of each a step."""
        parts: list[list[np.ndarray]] = [[] for _ in self.sequences]
        while shares := {
            row: min(chunk, len(sequence) - self.computed[row])
            for row, sequence in enumerate(self.sequences)
            if len(sequence) > self.computed[row]
        }:
            for row, logits in self.step(shares).items():
                parts[row].append(logits)
        return [np.concatenate(logits) for logits in parts]


class Steps(Sequences):
    """In the torch reference."""

    def __init__(self, loaded: Loaded, sequences: list[list[int]], max_len: int, dtype: torch.dtype = torch.float32):
        super().__init__(sequences, max_len)
        self.cache = allocate_kv(loaded.spec, self.num_blocks, BLOCK_SIZE, CPU, dtype)
        self.cache.zero_blocks(torch.arange(self.num_blocks))
        self.ops, self.model = TorchOps(self.cache), loaded.model

    @torch.inference_mode()
    def run(self, batch: Batch) -> np.ndarray:
        return self.model.forward(self.ops, torch_batch(batch, BLOCK_SIZE, CPU)).numpy()


def greedy(loaded: Loaded, prompts: list[list[int]], num_tokens: int, chunk: int) -> list[list[int]]:
    """The batch's greedy continuations. A sequence starts to decode as soon as its own prompt is done."""
    steps = Steps(loaded, prompts, max(map(len, prompts)) + num_tokens)
    wanted = [len(prompt) + num_tokens for prompt in prompts]
    while shares := {
        row: min(chunk, len(sequence) - steps.computed[row])
        for row, sequence in enumerate(steps.sequences)
        if len(sequence) < wanted[row]
    }:
        for row, logits in steps.step(shares).items():
            if steps.computed[row] == len(steps.sequences[row]):
                steps.sequences[row].append(int(logits[-1].argmax()))
    return [sequence[len(prompt) :] for sequence, prompt in zip(steps.sequences, prompts, strict=True)]
