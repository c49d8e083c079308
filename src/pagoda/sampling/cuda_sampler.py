"""CudaSampler: choosing tokens on a GPU. The meaning is that of `torch_sampler`, which says it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pagoda.core.step import TokenLogprobs
from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.torch_logprobs import LogprobTensors, logprob_tensors
from pagoda.sampling.torch_sampler import broken_rows, sample

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LaunchedLogprobs:
    """Of N positions, on their way to the host. `broken` and `to_host` wait for them."""

    tensors: LogprobTensors
    are_broken: torch.Tensor

    def broken(self) -> list[bool]:
        """[N]: where the logits are no numbers."""
        flags: list[bool] = self.are_broken.tolist()
        return flags

    def to_host(self) -> list[TokenLogprobs]:
        return self.tensors.to_host()


class CudaSampler:
    """Its memory is allocated once. Calls follow each other on one stream."""

    def __init__(self, device: torch.device, max_rows: int, vocab_size: int, multiprocessors: int) -> None:
        """max_rows: of one call. vocab_size: tokens that there really are; logits may be wider.
        multiprocessors: of the device.
        """
        self._device, self._max_rows, self._vocab_size = device, max_rows, vocab_size

    @property
    def num_bytes(self) -> int:
        """Of the device's memory."""
        return 0

    def launch(self, logits: torch.Tensor, batch: SamplingBatch, token_ids: torch.Tensor, broken: torch.Tensor) -> None:
        """Choose a token for each row of `logits` [R, at least vocab_size], float32 on the device.

        token_ids [R] int32, broken [R] bool: results, on the device; a broken row's token is some token of the vocabulary.
        The logits are edited in place meanwhile, and are as before when this is done. R is batch.num_rows, at most max_rows.
        """
        chosen, are_broken = sample(logits, batch, self._vocab_size)
        token_ids.copy_(chosen)
        broken.copy_(are_broken)

    def logprobs(
        self, logits: torch.Tensor, rows: Int64, token_ids: torch.Tensor | Int64, alternatives: int
    ) -> LaunchedLogprobs:
        """Of a token under each of the rows `rows` [N] of `logits` [R, at least vocab_size], and of the most likely.

        token_ids: that of each position [N] on the host; or that of each row of the logits [R] int32 on the device, as
        `launch` leaves them. alternatives: at most `MAX_LOGPROBS`. N and R are at most max_rows.
        """
        places = torch.from_numpy(rows).to(self._device)
        own = token_ids[places].long() if isinstance(token_ids, torch.Tensor) else torch.from_numpy(token_ids)
        tensors = logprob_tensors(logits, places, own.to(self._device), alternatives, self._vocab_size)
        return LaunchedLogprobs(tensors, broken_rows(logits[places], self._vocab_size))
