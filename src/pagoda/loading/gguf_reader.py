"""One GGUF file on disk: its header, and its tensors' bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.loading.gguf_header import GGUFHeader
from pagoda.loading.mapped_file import MappedFile


class GGUFReader:
    """`metadata` and `tensors` are the header's. Raises what `GGUFHeader` does, and `ModelFileError` for an unreadable file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = MappedFile(path)
        try:
            self.header = GGUFHeader(self._file)
        except BaseException:
            self._file.close()
            raise
        self.metadata: dict[str, Any] = self.header.metadata
        self.tensors: dict[str, TensorInfo] = self.header.tensors
        self._starts = self.header.starts

    def read(self, name: str) -> StoredTensor:
        """The tensor's bytes, a view of the mapped file. Raises KeyError for an unknown name."""
        return self._file.tensor_at(self.tensors[name], self._starts[name])

    def release(self, name: str) -> None:
        """The tensor's bytes need not stay in memory. Raises KeyError for an unknown name."""
        start = self._starts[name]
        self._file.release(start, start + self.tensors[name].num_bytes)

    def close(self) -> None:
        """Lets go of the file; tensors already read stay valid, and no more can be read."""
        self._starts = {}
        self._file.close()
