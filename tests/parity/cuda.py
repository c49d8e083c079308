"""A tiny model in the GPU's path: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.models.weights import load_model
from pagoda.ops.cuda.cache import allocate_cuda_kv
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.program import build_model
from pagoda.ops.cuda.step import CudaStep, query_tiles
from pagoda.ops.cuda.weight_ops import CudaWeightOps
from pagoda.runner.batch import Batch
from tests.parity.harness import BLOCK_SIZE, Sequences

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class CudaSteps(Sequences):
    """As `Steps`, but by the kernels of the GPU's path."""

    def __init__(
        self,
        directory: Path,
        sequences: list[list[int]],
        max_len: int,
        dtype: torch.dtype = torch.float32,
        *,
        is_deterministic: bool = False,
        quantization: str | None = None,
    ):
        super().__init__(sequences, max_len)
        checkpoint = open_checkpoint(str(directory))
        family = family_for(checkpoint.config)
        spec = family.spec(checkpoint.config)
        machine = Machine.of(DEVICE, dtype, is_deterministic=is_deterministic)
        with torch.inference_mode():
            with CudaWeightOps(DEVICE, dtype, quantization) as weights:
                model = load_model(checkpoint, family, spec, weights)
            cache = allocate_cuda_kv(spec, self.num_blocks, BLOCK_SIZE, DEVICE, dtype)
            cache.storage.zero_()
            most = sum(map(len, sequences))
            self.model = build_model(model.forward, cache, machine, max_tokens=most, max_seqs=len(sequences))

    @torch.inference_mode()
    def run(self, batch: Batch) -> np.ndarray:
        step = cuda_step(batch)
        program = self.model.program_for(step)
        first = program.run(step)
        parts = [first.cpu().numpy().copy()]
        for start in range(len(first), len(batch.logit_rows), len(first)):
            parts.append(program.logits(step, start).cpu().numpy().copy())
        return np.concatenate(parts)


def cuda_step(batch: Batch) -> CudaStep:
    def on_device(values: np.ndarray, dtype: type = np.int32) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype)).to(DEVICE)

    tiles, num_wide_tiles = query_tiles(batch.query_start_loc, batch.seq_lens)
    return CudaStep(
        on_device(batch.input_ids),
        on_device(batch.positions),
        on_device(batch.slot_mapping, np.int64),
        on_device(batch.query_start_loc),
        on_device(batch.seq_lens),
        on_device(batch.block_table),
        on_device(batch.logit_rows),
        on_device(tiles),
        num_wide_tiles,
        is_decode=len(batch.input_ids) == len(batch.seq_lens),
    )
