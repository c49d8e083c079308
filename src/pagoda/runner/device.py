"""Device: where a model runs, in which number format, and how much memory it may take there."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Device:
    """kind: "cpu" or "cuda". dtype: of weights, activations and KV cache. usable_bytes: before anything is loaded."""

    kind: str
    dtype: str
    usable_bytes: int
    threads: int

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]
