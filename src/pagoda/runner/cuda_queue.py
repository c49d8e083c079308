"""CudaQueue: the stream that all of a runner's work goes to. On a CPU, for tests, work is done when it is asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch


class Event(Protocol):
    """A place in the queue."""

    def record(self) -> None:
        """It is here: behind all that was asked for so far."""
        ...

    def synchronize(self) -> None:
        """Wait until all before it is done; at once where it is nowhere yet."""
        ...


class CudaQueue:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def entered(self) -> AbstractContextManager[object]:
        """Inside, what is launched goes to the queue."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def event(self) -> Event:
        return torch.cuda.Event() if self._stream is not None else _Done()  # type: ignore[no-untyped-call]

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """uint8 [num_bytes], zeros; on a GPU's host pinned, so that copies need not wait for each other."""
        return torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=self._stream is not None)

    def finish(self) -> None:
        """Wait for all that was asked for, here and elsewhere on the device."""
        if self._stream is not None:
            torch.cuda.synchronize(self.device)


class _Done:
    def record(self) -> None:
        """Nothing is ever left to do."""

    def synchronize(self) -> None:
        """Nothing is ever left to do."""
