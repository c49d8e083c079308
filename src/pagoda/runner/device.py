"""Device: where a model runs, in which number formats, and how much memory it may take there."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Device:
    """kind: "cpu" (native kernels), "cuda", or "reference" (torch on the CPU).

    dtype: of weights and activations. On cpu, where each kernel has its own, how weights are held: "stored", as in the
        model's files, or "int8" or "int4".
    usable_bytes: before anything is loaded. instruction_set: of the native kernels, None elsewhere.
    kv_dtype: of the KV cache: one of `dtype`'s, "int8" (cpu) or "fp8" (cuda).
    quantization: what dense weights become while they are loaded: None, "int8", "int4" or "fp8" (cuda).
    is_deterministic: a request's results are the same whatever else runs. gpu: its name, where it is one.
    """

    kind: str
    dtype: str
    usable_bytes: int
    threads: int
    instruction_set: str | None = None
    kv_dtype: str = "bfloat16"
    quantization: str | None = None
    is_deterministic: bool = False
    gpu: str | None = None

    @property
    def element_bytes(self) -> int:
        """Of activations, and of what is held as they are, where torch executes."""
        return ELEMENT_BYTES[self.dtype]

    def __str__(self) -> str:
        """For people: "cpu (avx512, 8 threads)", "cuda (NVIDIA H200, bfloat16, int4 weights)"."""
        if self.gpu is None:
            threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
            return f"{self.kind} ({self.instruction_set or self.dtype}, {threads})"
        words = [self.gpu, self.dtype]
        if self.quantization is not None:
            words.append(f"{self.quantization} weights")
        if self.kv_dtype != self.dtype:
            words.append(f"{self.kv_dtype} KV cache")
        if self.is_deterministic:
            words.append("deterministic")
        return f"cuda ({', '.join(words)})"
