"""A file mapped read-only: its bytes as one numpy array, read from disk only where touched."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from pagoda.errors import ModelFileError
from pagoda.loading.checkpoint import StoredTensor, TensorInfo

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class MappedFile:
    """`data`: uint8 [size], read-only; `buffer`: the same bytes for `struct` and slicing.

    Raises `ModelFileError` for a file that is absent, unreadable or empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # what mmap raises for an empty file
            raise ModelFileError(f"{path}: the file is empty") from None
        except OSError as error:
            raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from None
        self._size = len(self.buffer)

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        import numpy as np  # not where only headers are read

        return np.frombuffer(self.buffer if self._size else b"", np.uint8)

    @property
    def size(self) -> int:
        return self._size

    def available(self, end: int) -> int:
        """How many bytes `buffer` holds: all of them."""
        return self.size

    def bytes_at(self, start: int, end: int) -> bytes:
        """A copy of the bytes from `start` up to `end`; the caller has checked that they lie inside the file."""
        return self.buffer[start:end]

    def tensor_at(self, info: TensorInfo, start: int) -> StoredTensor:
        """The tensor whose bytes begin at `start`, as a view; the caller has checked that it lies inside the file."""
        rows = 1
        for size in info.shape[:-1]:
            rows *= size
        row_bytes = info.num_bytes // rows if rows else 0
        return StoredTensor(info, self.data[start : start + info.num_bytes].reshape(rows, row_bytes))

    def release(self, start: int, end: int) -> None:
        """These bytes have been used: their pages need not stay in this process's memory. They are still there to be read,
        from the system's page cache or the disk."""
        advice = getattr(mmap, "MADV_DONTNEED", None)  # not on Windows
        if advice is not None and end > start:
            first = start - start % mmap.PAGESIZE
            self.buffer.madvise(advice, first, end - first)

    def close(self) -> None:
        """Lets go of the mapping; views already handed out stay valid, and the last of them frees it."""
        self._size = 0
        with contextlib.suppress(BufferError):
            self.buffer.close()
