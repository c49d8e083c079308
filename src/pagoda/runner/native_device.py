"""The CPU as the native kernels see it: which of their instruction sets, how many threads, what they refuse."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.runner.device import Device
from pagoda.runner.host_cores import usable_cores
from pagoda.runner.host_memory import host_memory

FORCED_ISA = "PAGODA_CPU_ISA"
# Keys are read 16 at a time, so a block is whole groups of them.
BLOCK_MULTIPLE = 16


def choose_native_device(config: EngineConfig) -> Device:
    """Resolve `threads` and the instruction set.

    Raises `InvalidValueError` for settings that native kernels do not have, and `PagodaError` where they are not built.
    """
    if config.dtype != "auto":
        limit = "auto on the CPU, where weights stay as they are stored; device reference computes in any dtype"
        raise InvalidValueError("dtype", config.dtype, limit)
    if config.block_size % BLOCK_MULTIPLE:
        limit = f"a multiple of {BLOCK_MULTIPLE} on the CPU; device reference takes any"
        raise InvalidValueError("block_size", config.block_size, limit)
    if config.quantization == "fp8":
        limit = "none, int8 or int4 on the CPU, which has no arithmetic for it; fp8 is for device cuda"
        raise InvalidValueError("quantization", config.quantization, limit)
    if config.kv_cache_dtype == "fp8":
        limit = "auto, bfloat16 or int8 on the CPU; fp8 is for device cuda"
        raise InvalidValueError("kv_cache_dtype", config.kv_cache_dtype, limit)
    quantization = None if config.quantization == "none" else config.quantization
    return Device(
        "cpu",
        quantization or "stored",
        host_memory().usable_bytes,
        config.threads or usable_cores(),
        choose_instruction_set(_instruction_sets(), os.environ),
        "bfloat16" if config.kv_cache_dtype == "auto" else config.kv_cache_dtype,
        quantization,
        is_deterministic=True,
    )


def choose_instruction_set(available: Sequence[str], environment: Mapping[str, str]) -> str:
    """The best of the available ones, which come best first, or the one that the environment forces.

    Raises `InvalidValueError` where that is not among them.
    """
    forced = environment.get(FORCED_ISA, "")
    if not forced:
        return available[0]
    if forced not in available:
        raise InvalidValueError(FORCED_ISA, forced, f"one that this machine can execute: {', '.join(available)}")
    return forced


def _instruction_sets() -> Sequence[str]:
    try:
        from pagoda import _native
    except ImportError:
        raise PagodaError("the native kernels are not built; install Pagoda with pip install .") from None
    return _native.instruction_sets()
