"""`CudaSampler`'s calls by the torch sampler: many times as fast as Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pagoda.core.step import TokenLogprobs
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.torch_logprobs import LogprobTensors, logprob_tensors
from pagoda.sampling.torch_sampler import broken_rows, sample


@dataclass
class ReferenceLogprobs:
    tensors: LogprobTensors
    are_broken: torch.Tensor

    def broken(self) -> list[bool]:
        return self.are_broken.tolist()

    def to_host(self) -> list[TokenLogprobs]:
        return self.tensors.to_host()


@dataclass
class ReferenceSampler:
    vocab_size: int
    num_bytes: int = 0

    def launch(self, logits: torch.Tensor, batch: SamplingBatch, token_ids: torch.Tensor, broken: torch.Tensor) -> None:
        chosen, are_broken = sample(logits, batch, self.vocab_size)
        token_ids.copy_(chosen)
        broken.copy_(are_broken)

    def logprobs(
        self, logits: torch.Tensor, rows: np.ndarray, token_ids: torch.Tensor | np.ndarray, alternatives: int
    ) -> ReferenceLogprobs:
        places = torch.from_numpy(rows)
        own = token_ids[places].long() if isinstance(token_ids, torch.Tensor) else torch.from_numpy(token_ids)
        tensors = logprob_tensors(logits, places, own, alternatives, self.vocab_size)
        return ReferenceLogprobs(tensors, broken_rows(logits[places], self.vocab_size))
