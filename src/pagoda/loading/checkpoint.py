"""Checkpoint: a model's files, opened and checked but not read. What kind of file it is ends here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # planning reads headers only, and numpy takes a tenth of a second to import
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as stored. shape: row-major, [out, in] for a matrix. format: a GGUF type name (F32, BF16, Q4_1, …), "fp8" or
    "fp8_block" (see `planning.formats.FP8_FORMATS`), whose scales are in the tensor `scale`. num_bytes: without those."""

    name: str
    shape: tuple[int, ...]
    format: str
    num_bytes: int
    scale: TensorInfo | None = None


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's bytes in its stored format, usually a view of the mapped file.

    data: uint8 [rows, bytes per row], one row per last dimension's worth of elements; a vector is one row.
    scale: what codes in fp8 are multiplied by, as stored; `quantization.fp8_scales` gives its values.
    """

    info: TensorInfo
    data: npt.NDArray[np.uint8]
    scale: StoredTensor | None = None


class Checkpoint(Protocol):
    """Opened files of one model.

    config: in Hugging Face's names whatever the files were (`hidden_size`, `num_attention_heads`, `model_type`, …);
        for a GGUF file also `rope_divisors` (list of float), where it stores them.
    generation_config: in Hugging Face's names; empty where there is none.
    tensors: every tensor in the files.
    metadata: for a GGUF file its key-value pairs (the vocabulary among them); empty for a directory.
    directory: for a Hugging Face directory its path (tokenizer.json is beside the weights); None for a GGUF file.
    """

    kind: Literal["huggingface", "gguf"]
    name: str
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, Any]
    directory: Path | None

    def read(self, name: str) -> StoredTensor:
        """The tensor's bytes. Raises KeyError for an unknown name."""
        ...

    def release(self, name: str) -> None:
        """The tensor has been taken: its bytes need not stay in memory. What was read of it stays valid all the same."""
        ...

    def close(self) -> None: ...
