"""A queue whose copies are as late as they may be: what is in the host's memory meanwhile is anything."""

from __future__ import annotations

import torch

from pagoda.runner.cuda_queue import CudaQueue, Event

ANYTHING = 0x55


class LateQueue(CudaQueue):
    """On the CPU. The event asked for after some host memory says when what was copied from or to that memory is done."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.num_waits = 0
        self._latest = torch.zeros(0)

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        self._latest = super().host_memory(num_bytes)
        return self._latest

    def event(self) -> Event:
        return _LateEvent(self, self._latest)


class _LateEvent:
    def __init__(self, queue: LateQueue, memory: torch.Tensor) -> None:
        self._queue, self._memory = queue, memory
        self._contents: torch.Tensor | None = None

    def record(self) -> None:
        assert self._contents is None, "copied again, and nobody has waited for the copy before"
        self._contents = self._memory.clone()
        self._memory.fill_(ANYTHING)

    def synchronize(self) -> None:
        if self._contents is None:
            return
        self._queue.num_waits += 1
        assert (self._memory == ANYTHING).all(), "written to while it was being copied"
        self._memory.copy_(self._contents)
        self._contents = None
