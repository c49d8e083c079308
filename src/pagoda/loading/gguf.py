"""A GGUF checkpoint: one file, or the parts of a split one (`NAME-00001-of-00003.gguf`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import StoredTensor, TensorInfo
from pagoda.loading.gguf_config import gguf_config, gguf_generation_config
from pagoda.loading.gguf_header import GGUFHeader
from pagoda.loading.gguf_reader import GGUFReader

ROPE_DIVISORS = "rope_freqs.weight"
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class GGUFCheckpoint:
    """A `Checkpoint` over GGUF files; see `loading.checkpoint` for its members.

    `config` also has `rope_divisors`, the values of the tensor `rope_freqs.weight`, where the file has that.
    """

    kind: Literal["huggingface", "gguf"] = "gguf"

    def __init__(self, path: Path, name: str) -> None:
        """Opens and checks the file, or, given any part of a split one, all parts; reads no weight.

        Raises `ModelFileError` or `UnsupportedModelError`.
        """
        self.name = name
        self.directory: Path | None = None
        self._readers: list[GGUFReader] = []
        self._reader_of: dict[str, GGUFReader] = {}
        try:
            for part in split_parts(path):
                self._readers.append(GGUFReader(part))
            first = self._readers[0].header
            tensors = merged_tensors([reader.header for reader in self._readers])
            self._reader_of = {name: reader for reader in self._readers for name in reader.tensors}
            config = gguf_config(first.metadata, tensors, str(first.path))
            if ROPE_DIVISORS in tensors:
                config["rope_divisors"] = self._rope_divisors(tensors[ROPE_DIVISORS])
        except BaseException:
            self.close()
            raise
        self.tensors: Mapping[str, TensorInfo] = tensors
        self.metadata: Mapping[str, Any] = first.metadata
        self.config: Mapping[str, Any] = config
        self.generation_config: Mapping[str, Any] = gguf_generation_config(first.metadata)

    def read(self, name: str) -> StoredTensor:
        """The tensor's bytes, a view of the mapped file. Raises KeyError for an unknown name."""
        return self._reader_of[name].read(name)

    def release(self, name: str) -> None:
        """The tensor's bytes need not stay in memory. Raises KeyError for an unknown name."""
        self._reader_of[name].release(name)

    def close(self) -> None:
        """Lets go of the files; tensors already read stay valid, and no more can be read."""
        self._reader_of = {}
        for reader in self._readers:
            reader.close()

    def _rope_divisors(self, info: TensorInfo) -> list[float]:
        if info.format != "F32" or len(info.shape) != 1:
            raise ModelFileError(
                f"{self._readers[0].path}: {ROPE_DIVISORS} is {info.format} of shape {info.shape}, a vector in F32 is needed"
            )
        values: list[float] = self.read(ROPE_DIVISORS).data[0].view("<f4").tolist()
        return values


def merged_tensors(parts: Sequence[GGUFHeader]) -> dict[str, TensorInfo]:
    """The tensors of all parts of a model, in order. Raises `ModelFileError` for parts that do not belong together."""
    part_of: dict[str, GGUFHeader] = {}
    for number, part in enumerate(parts):
        _check_part(part, number, len(parts))
        for name in part.tensors:
            if name in part_of:
                raise ModelFileError(f"{part.path}: the tensor {shown(name)} is in {part_of[name].path.name} too")
            part_of[name] = part
    claimed = parts[0].metadata.get("split.tensors.count")
    if len(parts) > 1 and claimed is not None and claimed != len(part_of):
        raise ModelFileError(
            f"{parts[0].path}: split.tensors.count is {shown(claimed)}, but the {len(parts)} parts have "
            f"{len(part_of):,} tensors"
        )
    return {name: part.tensors[name] for name, part in part_of.items()}


def _check_part(part: GGUFHeader, number: int, count: int) -> None:
    claimed = part.metadata.get("split.count", 1 if count == 1 else None)
    # A file of a single part may say 0 or 1.
    if claimed != count and not (count == 1 and claimed == 0):
        raise ModelFileError(
            f"{part.path}: split.count is {shown(claimed)}, but its name says {count} part{'s' * (count > 1)}"
        )
    if count > 1 and part.metadata.get("split.no") != number:
        raise ModelFileError(
            f"{part.path}: split.no is {shown(part.metadata.get('split.no'))}, its name says {number} (from 0)"
        )


def split_parts(path: Path) -> list[Path]:
    """All parts of the split file that `path` is one of, in order; just `path` for any other name.

    Raises `ModelFileError` where a part is missing.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count:
        raise ModelFileError(f"{path}: its name says part {int(match['number'])} of {count}")
    parts = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    for part in parts:
        if not part.is_file():
            raise ModelFileError(f"{path}: the part {part.name} of this split file is missing")
    return parts
