"""Parameters of a launch on their way to the device: one copy out of pinned memory, without waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch

_ALIGNMENT = 16
_SLOTS = 2

Arrays = dict[str, npt.NDArray[Any]]


class Staging:
    """Arrays of fixed places, which the host fills and sends: `host()`, write, `send`.

    device: the tensors there, by name. What was sent stays until the next `send`, in the order of the stream.
    The host's arrays exist twice, so that it may fill one set while the other is still being copied.
    """

    def __init__(self, device: torch.device, fields: Mapping[str, tuple[torch.dtype, int]]) -> None:
        """fields: format and length of each. The last may be sent in part."""
        places, size = dict[str, tuple[int, torch.dtype, int]](), 0
        for name, (dtype, length) in fields.items():
            places[name] = size, dtype, length
            size = -(-(size + dtype.itemsize * length) // _ALIGNMENT) * _ALIGNMENT
        self._is_cuda = device.type == "cuda"
        self._last, self._size = places[name], size
        self._bytes = torch.zeros(size, dtype=torch.uint8, device=device)
        self._pinned = [torch.zeros(size, dtype=torch.uint8, pin_memory=self._is_cuda) for _ in range(_SLOTS)]
        self._sent: list[torch.cuda.Event | None] = [None] * _SLOTS
        self._slot = 0
        self.device = _views(self._bytes, places)
        self._host: list[Arrays] = [
            {name: view.numpy() for name, view in _views(pinned, places).items()} for pinned in self._pinned
        ]

    @property
    def num_bytes(self) -> int:
        """Of the device's memory."""
        return self._size

    def host(self) -> Arrays:
        """The arrays to fill next. Waits only if the copy before the last one is not yet done."""
        event = self._sent[self._slot]
        if event is not None:
            event.synchronize()
        return self._host[self._slot]

    def send(self, length_of_last: int | None = None) -> None:
        """length_of_last: how much of the last field is needed; None: all."""
        offset, dtype, length = self._last
        end = offset + dtype.itemsize * (length if length_of_last is None else length_of_last)
        self._bytes[:end].copy_(self._pinned[self._slot][:end], non_blocking=True)
        if self._is_cuda:
            event = self._sent[self._slot] or torch.cuda.Event()
            event.record()
            self._sent[self._slot] = event
        self._slot = (self._slot + 1) % _SLOTS


def _views(memory: torch.Tensor, places: Mapping[str, tuple[int, torch.dtype, int]]) -> dict[str, torch.Tensor]:
    return {
        name: memory[offset : offset + dtype.itemsize * length].view(dtype)
        for name, (offset, dtype, length) in places.items()
    }
