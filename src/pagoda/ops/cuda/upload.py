"""From mapped files to the device, as fast as the slower of the two gives and takes: reading a file and copying overlap."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from pagoda.errors import InvariantError

Bytes = npt.NDArray[np.uint8]

STAGING_BYTES = 64 << 20
# Threads that read: whoever touches a page of a mapped file that is not in memory waits for the disk.
READERS = min(8, os.cpu_count() or 1)
# What is worth a thread.
READER_BYTES = 4 << 20


class StagingBuffer(Protocol):
    """Memory of the host from which the device copies by itself. bytes: uint8 [its size]."""

    bytes: Bytes

    def send(self, target: torch.Tensor) -> None:
        """Begin to copy the first bytes to the target, uint8 [at most its size] on the device."""
        ...

    def wait(self) -> None:
        """Until the last copy has left: then `bytes` may be overwritten."""
        ...

    def free(self) -> None:
        """Give the memory back. No copy may be under way."""
        ...


class PinnedBuffer:
    """Pinned memory, copied on `stream`. It is registered here, as torch would keep for itself what it has pinned once."""

    def __init__(self, num_bytes: int, stream: torch.cuda.Stream) -> None:
        self._memory = torch.empty(num_bytes, dtype=torch.uint8)
        torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(self._memory.data_ptr(), num_bytes, 0)))
        self.bytes: Bytes = self._memory.numpy()
        self._stream, self._sent = stream, torch.cuda.Event()
        self._unpin = weakref.finalize(self, _unpin, self._memory, self._sent)

    def send(self, target: torch.Tensor) -> None:
        """What the current stream was given before comes before the copy, and what it is given from now on after it."""
        current = torch.cuda.current_stream(target.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            target.copy_(self._memory[: target.shape[0]], non_blocking=True)
            self._sent.record(self._stream)
        current.wait_event(self._sent)

    def wait(self) -> None:
        self._sent.synchronize()

    def free(self) -> None:
        self._unpin()


def _unpin(memory: torch.Tensor, sent: torch.cuda.Event) -> None:
    """Also of a buffer that nobody freed: the device must not read what is not there any more."""
    sent.synchronize()
    torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())))


class Uploader:
    """Copies host memory to `device`. To be finished, or used in a `with`: the pinned memory is freed then.

    What is copied is ready for the current stream, without waiting for it on the host.
    """

    def __init__(self, device: torch.device, buffers: Sequence[StagingBuffer] | None = None) -> None:
        """buffers: None: two pinned ones for a GPU; a CPU needs none."""
        self.device = device
        if buffers is None:
            buffers = ()
            if device.type == "cuda":
                stream = torch.cuda.Stream(device)
                buffers = [PinnedBuffer(STAGING_BYTES, stream) for _ in range(2)]
        self._buffers: list[StagingBuffer] | None = list(buffers)
        self._readers = ThreadPoolExecutor(READERS, "upload")

    def raw(self, data: npt.NDArray[Any]) -> torch.Tensor:
        """The array's bytes on the device, uint8 [number of bytes]. The array may be read-only, and let go of afterwards."""
        target = torch.empty(data.nbytes, dtype=torch.uint8, device=self.device)
        self.into(data, target)
        return target

    def into(self, data: npt.NDArray[Any], target: torch.Tensor) -> None:
        """Copy the array's bytes to a contiguous tensor on the device that has as many, of any format: rows of a larger one,
        say. The array may be read-only, and let go of afterwards."""
        if target.nbytes != data.nbytes or not target.is_contiguous():
            raise InvariantError(f"{data.nbytes} bytes do not fit {target.nbytes}, or these do not lie together")
        if self._buffers is None:
            raise InvariantError("an upload after the last")
        source: Bytes = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        flat = target.view(-1).view(torch.uint8)
        if not self._buffers:
            self._read(source, flat.numpy())
            return
        start = 0
        while start < len(source):
            buffer = self._buffers.pop(0)  # the one that was sent first
            self._buffers.append(buffer)
            end = min(start + len(buffer.bytes), len(source))
            buffer.wait()
            self._read(source[start:end], buffer.bytes[: end - start])
            buffer.send(flat[start:end])
            start = end

    def finish(self) -> None:
        """Wait for all copies and free the pinned memory. Nothing more can be uploaded."""
        for buffer in self._buffers or ():
            buffer.wait()
            buffer.free()
        self._buffers = None
        self._readers.shutdown()

    def __enter__(self) -> Uploader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def _read(self, source: Bytes, target: Bytes) -> None:
        """Copy, by several threads where it is much: numpy lets go of the interpreter's lock."""
        if len(source) <= READER_BYTES:
            np.copyto(target, source)
            return
        parts = list(_parts(len(source), READER_BYTES))
        list(self._readers.map(lambda part: np.copyto(target[part], source[part]), parts))


def _parts(size: int, most: int) -> Iterator[slice]:
    for start in range(0, size, most):
        yield slice(start, min(start + most, size))
