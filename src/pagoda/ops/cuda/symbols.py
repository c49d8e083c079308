"""Symbols: the tensors of a program to be, and what a command of it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from pagoda.ops.cuda.step import CudaStep

Rows = Literal["tokens", "logits"]


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """[rows, width]: a row for each token of the step, or for each row of a slice of its logits.

    is_wide: float32 whatever the activations' format is.
    """

    width: int
    rows: Rows = "tokens"
    is_wide: bool = False


# Where a symbol's tensor is in this step: [rows of this step, width].
At = Callable[[Symbol], torch.Tensor]


class Command(Protocol):
    """One or a few kernels. It writes all of `writes`, and reads `reads` and what the step and the weights hold."""

    @property
    def reads(self) -> tuple[Symbol, ...]: ...

    @property
    def writes(self) -> tuple[Symbol, ...]: ...

    def launch(self, at: At, step: CudaStep) -> None:
        """Start it on the current stream. Allocates nothing on the device."""
        ...
