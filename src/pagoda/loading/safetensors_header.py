"""The header of a safetensors file, believed only after its claims fit the file's size.

Format: https://github.com/huggingface/safetensors (8 bytes of header length, a JSON header, the tensors' bytes without holes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pagoda.errors import ModelFileError, UnsupportedModelError, shown
from pagoda.loading.checkpoint import TensorInfo
from pagoda.loading.json_file import parse_json_object
from pagoda.loading.mapped_file import MappedFile

MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 1 << 48

DTYPE_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and where its bytes begin in the file."""

    info: TensorInfo
    start: int


def read_safetensors_header(file: MappedFile) -> dict[str, Placed]:
    """Every tensor of the file. Raises `ModelFileError`, or `UnsupportedModelError` for an unknown dtype."""
    if file.size < 8:
        raise ModelFileError(f"{file.path}: {file.size} bytes are too few for a safetensors header")
    length = int.from_bytes(file.bytes_at(0, 8), "little")
    if length > MAX_HEADER_BYTES or length > file.size - 8:
        raise ModelFileError(
            f"{file.path}: claims a header of {length:,} bytes, but the file has {file.size:,} "
            f"and headers may have at most {MAX_HEADER_BYTES:,} (truncated, or not safetensors)"
        )
    header = parse_json_object(file.bytes_at(8, 8 + length), f"{file.path}: safetensors header")
    header.pop("__metadata__", None)
    base = 8 + length
    placed = {name: _entry(file, name, entry, base) for name, entry in header.items()}
    _check_no_holes(file, placed, base)
    return placed


def _entry(file: MappedFile, name: str, entry: Any, base: int) -> Placed:
    where = f"{file.path}: tensor {shown(name)}"
    if not isinstance(entry, dict):
        raise ModelFileError(f"{where} is described by {shown(entry)}, an object is needed")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str):
        raise ModelFileError(f"{where} has the dtype {shown(dtype)}, a string is needed")
    if dtype not in DTYPE_BYTES:
        raise UnsupportedModelError(f"{where}: dtype", dtype, DTYPE_BYTES)
    # An empty tensor's other sizes count as well: no array can be made of sizes whose product overflows.
    if (
        not _is_sizes(shape, MAX_ELEMENTS)
        or len(shape) > MAX_DIMENSIONS
        or math.prod(max(1, size) for size in shape) > MAX_ELEMENTS
    ):
        raise ModelFileError(
            f"{where} has the shape {shown(shape)}, must be at most {MAX_DIMENSIONS} sizes "
            f"whose product is at most {MAX_ELEMENTS:,}"
        )
    if not _is_sizes(offsets, file.size - base) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelFileError(
            f"{where} has the data_offsets {shown(offsets)}, but the file has {file.size - base:,} bytes of data "
            "(truncated, or corrupt)"
        )
    needed, given = math.prod(shape) * DTYPE_BYTES[dtype], offsets[1] - offsets[0]
    if needed != given:
        raise ModelFileError(f"{where} of shape {shape} in {dtype} needs {needed:,} bytes, data_offsets give {given:,}")
    return Placed(TensorInfo(name, tuple(shape), dtype, given), base + offsets[0])


def _is_sizes(value: Any, maximum: int) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= maximum for item in value)


def _check_no_holes(file: MappedFile, placed: dict[str, Placed], base: int) -> None:
    """The tensors' bytes must follow each other from the header's end to the file's end, as the format demands."""
    end = base
    for tensor in sorted(placed.values(), key=lambda tensor: (tensor.start, tensor.info.num_bytes)):
        if tensor.start != end:
            problem = "overlaps the tensor before it" if tensor.start < end else "leaves a hole before it"
            raise ModelFileError(f"{file.path}: tensor {shown(tensor.info.name)} {problem} (corrupt)")
        end += tensor.info.num_bytes
    if end != file.size:
        raise ModelFileError(f"{file.path}: {file.size - end:,} bytes at the end belong to no tensor (corrupt)")
