"""Device: where a model runs, in which number format, and how much memory it may take there."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Device:
    """kind: "cpu" (native kernels), "cuda", or "reference" (torch on the CPU).

    dtype: of weights, activations and KV cache. On cpu, where each kernel has its own, how weights are held: "stored", as
        in the model's files, or "int8" or "int4".
    usable_bytes: before anything is loaded. instruction_set: of the native kernels, None elsewhere.
    kv_dtype: of the KV cache on cpu, "bfloat16" or "int8"; elsewhere it is as `dtype` says.
    """

    kind: str
    dtype: str
    usable_bytes: int
    threads: int
    instruction_set: str | None = None
    kv_dtype: str = "bfloat16"

    @property
    def quantization(self) -> str | None:
        """What dense weights become while they are loaded: None, "int8" or "int4"."""
        return self.dtype if self.kind == "cpu" and self.dtype != "stored" else None

    @property
    def element_bytes(self) -> int:
        """Of weights, activations and KV cache where torch executes."""
        return ELEMENT_BYTES[self.dtype]

    def __str__(self) -> str:
        """For people: "cpu (avx512, 8 threads)"."""
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        return f"{self.kind} ({self.instruction_set or self.dtype}, {threads})"
