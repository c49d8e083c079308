"""A GGUF file's header: its metadata and its tensors' places, believed only after they fit the file's size.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
from typing import Any

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import TensorInfo
from pagoda.loading.gguf_cursor import GGUFCursor, HeaderSource
from pagoda.loading.gguf_types import tensor_format

MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32
_VOCABULARY = "tokenizer."
# The least a metadata pair takes (key length, value type, one byte of value) and a tensor (name length, number of
# dimensions, type, offset).
_LEAST_PAIR_BYTES, _LEAST_TENSOR_BYTES = 13, 24


class GGUFHeader:
    """`metadata`: key → int, float, bool, str or list. `tensors`: name → info, shapes row-major ([out, in]).
    `starts`: name → the byte of the file where the tensor begins.

    Only the file's size and the bytes of its header are asked of `file`, which is not kept.
    vocabulary: whether `metadata` has what describes the tokenizer too, which is nearly all of a header.

    Raises `ModelFileError` for whatever is wrong with the file, `UnsupportedModelError` for a tensor in a format that this
    version does not have.
    """

    def __init__(self, file: HeaderSource, *, vocabulary: bool = True) -> None:
        self.path = file.path
        self._vocabulary = vocabulary
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self.starts: dict[str, int] = {}
        self._read(GGUFCursor(file))
        self._check_places(file.size)

    def _read(self, cursor: GGUFCursor) -> None:
        if cursor.file.size < 24 or cursor.file.bytes_at(0, 4) != b"GGUF":
            raise ModelFileError(f"{self.path}: is not a GGUF file (does not begin with GGUF and a header of 24 bytes)")
        cursor.position = 4
        version = cursor.u32("the version")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            kind = f"big-endian version {swapped}" if swapped in (1, 2, 3) else f"version {version}"
            raise ModelFileError(f"{self.path}: is GGUF {kind}; little-endian versions 2 and 3 are supported")
        num_tensors = cursor.count("tensors", _LEAST_TENSOR_BYTES)
        for _ in range(cursor.count("metadata pairs", _LEAST_PAIR_BYTES)):
            key = cursor.name("metadata key")
            if key in self.metadata:
                raise ModelFileError(f"{self.path}: the metadata key {shown(key)} comes twice")
            value_type = cursor.u32(key)
            if self._vocabulary or not key.startswith(_VOCABULARY):
                self.metadata[key] = cursor.value(value_type, key)
            else:
                cursor.skip(value_type, key)
        alignment = self._alignment()
        offsets: dict[str, int] = {}
        for _ in range(num_tensors):
            info, offset = self._tensor(cursor)
            if info.name in self.tensors:
                raise ModelFileError(f"{self.path}: the tensor {shown(info.name)} comes twice")
            if offset % alignment:
                raise ModelFileError(
                    f"{self.path}: tensor {shown(info.name)} begins at {offset:,}, not a multiple of {alignment}"
                )
            self.tensors[info.name], offsets[info.name] = info, offset
        base = -(-cursor.position // alignment) * alignment
        self.starts = {name: base + offset for name, offset in offsets.items()}

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise ModelFileError(
                f"{self.path}: general.alignment is {shown(alignment)}, must be a power of two up to {MAX_ALIGNMENT:,}"
            )
        return alignment

    def _tensor(self, cursor: GGUFCursor) -> tuple[TensorInfo, int]:
        name = cursor.name("tensor name")
        where = f"{self.path}: tensor {shown(name)}"
        num_dimensions = cursor.u32(name)
        if num_dimensions > MAX_DIMENSIONS:
            raise ModelFileError(f"{where} has {num_dimensions:,} dimensions, at most {MAX_DIMENSIONS} are allowed")
        # Stored innermost first; [out, in] is what everyone else calls row-major.
        shape = tuple(reversed([cursor.u64(name) for _ in range(num_dimensions)]))
        kind = tensor_format(cursor.u32(name), where)
        offset = cursor.u64(name)
        if 0 in shape:
            raise ModelFileError(f"{where} has the shape {shape}, no size may be 0")
        if (shape[-1] if shape else 1) % kind.block_elements:
            raise ModelFileError(
                f"{where} has rows of {shape[-1] if shape else 1:,} elements, "
                f"which are not whole {kind.name} blocks of {kind.block_elements}"
            )
        num_bytes = math.prod(shape) // kind.block_elements * kind.block_bytes
        if num_bytes > cursor.file.size:
            raise ModelFileError(
                f"{where} of shape {shape} in {kind.name} would take {num_bytes:,} bytes, "
                f"but the file has {cursor.file.size:,} (truncated, or corrupt)"
            )
        return TensorInfo(name, shape, kind.name, num_bytes), offset

    def _check_places(self, size: int) -> None:
        end, before = 0, ""
        for name, start in sorted(self.starts.items(), key=lambda item: item[1]):
            if start < end:
                raise ModelFileError(f"{self.path}: the tensors {shown(before)} and {shown(name)} overlap (corrupt)")
            end, before = start + self.tensors[name].num_bytes, name
            if end > size:
                raise ModelFileError(
                    f"{self.path}: tensor {shown(name)} ends at byte {end:,}, "
                    f"but the file has {size:,} (truncated, or corrupt)"
                )
