"""The stages, in the order in which they are worth having should time run out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu.context import Context
from gpu.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Stage:
    """seconds: its time at most, of the machine's that it was planned on. call: module and function, given the context and
    the arguments."""

    name: str
    seconds: float
    call: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def run(self, context: Context) -> None:
        module, _, function = self.call.partition(":")
        getattr(importlib.import_module(f"gpu.{module}"), function)(context, **self.arguments)


def stages(sizes: Sizes) -> list[Stage]:
    least, most = sizes.batches[0], sizes.batches[-1]
    some = sizes.some_batches
    bf16 = {"batches": sizes.batches, "prefills": sizes.prefills}

    def engine(name: str, seconds: float, model: str = "llama", **arguments: Any) -> Stage:
        return Stage(name, seconds, "engine:run", {"model": model, **arguments})

    return [
        Stage("environment", 30, "environment:run"),
        Stage("ceilings", 45, "ceilings:run"),
        Stage("weights", 60, "weights:run"),
        # Nothing is compiled yet here, and everything the second time, as when somebody starts it again.
        engine("first start", 150, **bf16, only_starts=True),
        engine("bf16", 120, **bf16, profiled=(least, most), eager=(least,)),
        Stage("agreement", 90, "agreement:run", {"model": "llama-2-layers"}),
        Stage("kernel tests", 120, "kernel_tests:run"),
        engine("int4", 90, batches=some, quantization="int4"),
        engine("fp8", 90, batches=some, quantization="fp8"),
        engine("fp8 KV cache", 60, batches=some, kv_cache_dtype="fp8"),
        engine("deterministic", 60, batches=some, prefills=sizes.prefills[:1], deterministic=True),
        engine("qwen3", 60, model="qwen3", batches=(least, most), profiled=(least,)),
        Stage("agreement with grouped queries", 60, "agreement:run", {"model": "qwen3-2-layers"}),
        Stage("compute-sanitizer", 90, "kernel_tests:run_sanitized"),
        Stage("tuning", 240, "tuning:run"),
    ]
