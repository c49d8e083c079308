"""Models run step by step in the native program, and checkpoints whose tensors are in any formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagoda import _native
from pagoda.loading.checkpoint import Checkpoint, StoredTensor, TensorInfo
from pagoda.models.family import Model
from pagoda.models.registry import family_for
from pagoda.models.weights import load_model
from pagoda.ops.cpu_program import build_program
from pagoda.ops.cpu_weights import CpuWeight, CpuWeightOps
from pagoda.planning.formats import FORMATS
from pagoda.planning.model_spec import ModelSpec
from pagoda.runner.batch import Batch
from tests.models.fakes import FakeCheckpoint
from tests.parity.harness import BLOCK_SIZE, Sequences

MAX_TOKENS, MAX_SEQS = 512, 8


@dataclass
class NativeLoaded:
    spec: ModelSpec
    model: Model[CpuWeight]
    threads: _native.Threads


def load_native(
    checkpoint: Checkpoint, threads: int = 1, instruction_set: str = "", quantization: str | None = None
) -> NativeLoaded:
    family = family_for(checkpoint.config)
    spec = family.spec(checkpoint.config)
    workers = _native.Threads(threads, instruction_set or _native.instruction_sets()[0])
    return NativeLoaded(spec, load_model(checkpoint, family, spec, CpuWeightOps(workers, quantization)), workers)


class NativeSteps(Sequences):
    """In a native program of its own."""

    def __init__(self, loaded: NativeLoaded, sequences: list[list[int]], max_len: int, kv_dtype: str = "bfloat16"):
        super().__init__(sequences, max_len)
        self.native = build_program(
            loaded.model.forward,
            loaded.spec,
            loaded.threads,
            kv_dtype=kv_dtype,
            num_blocks=self.num_blocks,
            block_size=BLOCK_SIZE,
            max_tokens=MAX_TOKENS,
            max_seqs=MAX_SEQS,
        )

    def run(self, batch: Batch) -> np.ndarray:
        program = self.native.program
        slices = [
            program.run(
                batch.input_ids,
                batch.positions,
                batch.slot_mapping.astype(np.int64),
                batch.query_start_loc,
                batch.seq_lens,
                batch.block_table,
                batch.logit_rows,
                batch.new_blocks,
            ).copy()
        ]
        for first in range(self.native.max_logit_rows, len(batch.logit_rows), self.native.max_logit_rows):
            slices.append(program.logits(first).copy())
        return np.concatenate(slices)


class MadeCheckpoint(FakeCheckpoint):
    """Tensors of seeded random numbers, each matrix in the format that `format_of` gives its name."""

    def __init__(self, config: Mapping[str, Any], format_of: Callable[[str], str], seed: int = 0) -> None:
        super().__init__(config)
        self.made = {name: made(info, format_of(name), seed) for name, info in self.tensors.items()}
        self.tensors = {name: stored.info for name, stored in self.made.items()}

    def read(self, name: str) -> StoredTensor:
        return self.made[name]


def made(info: TensorInfo, format_name: str, seed: int) -> StoredTensor:
    """Gains near 1; other vectors and matrices near 0, with a spread that makes attention matter."""
    rng = np.random.default_rng([seed, *info.name.encode()])
    if len(info.shape) == 1:
        values = (info.name.endswith("norm.weight") + 0.2 * rng.standard_normal((1, *info.shape))).astype(np.float32)
        return StoredTensor(TensorInfo(info.name, info.shape, "F32", values.nbytes), values.view(np.uint8))
    spread = 0.1 if "embed" in info.name else 1.2 / info.shape[1] ** 0.5
    data = DENSE[format_name](spread * rng.standard_normal(info.shape)) if format_name in DENSE else None
    if data is None:
        data = random_blocks(rng, info.shape, format_name, spread)
    return StoredTensor(TensorInfo(info.name, info.shape, format_name, data.nbytes), data)


def random_blocks(rng: np.random.Generator, shape: tuple[int, ...], format_name: str, spread: float) -> np.ndarray:
    """Any bytes are a block, but its fp16 numbers must give weights of about that spread, and of mean about 0."""
    kind = FORMATS[format_name]
    blocks = rng.integers(0, 256, (shape[0] * shape[1] // kind.block_elements, kind.block_bytes), dtype=np.uint8)
    for at, factor in HALVES[format_name].items():
        numbers = spread * factor * rng.uniform(0.7, 1.3, (len(blocks), 1))
        blocks[:, at : at + 2] = numbers.astype(np.float16).view(np.uint8)
    return blocks.reshape(shape[0], -1)


DENSE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": lambda values: values.astype(np.float32).view(np.uint8),
    "F16": lambda values: values.astype(np.float16).view(np.uint8),
    "BF16": lambda values: (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8),
}
# Where a block's fp16 numbers are, and what they are for weights with a spread of 1: 1 / the spread of what they multiply.
HALVES = {
    "Q4_0": {0: 1 / 4.6},
    "Q4_1": {0: 1 / 4.6, 2: -7.5 / 4.6},
    "Q5_0": {0: 1 / 9.2},
    "Q5_1": {0: 1 / 9.2, 2: -15.5 / 9.2},
    "Q8_0": {0: 1 / 74},
    "Q4_K": {0: 1 / 170, 2: 7.5 / 170},
    "Q5_K": {0: 1 / 340, 2: 15.5 / 340},
    "Q6_K": {208: 1 / 1370},
}
