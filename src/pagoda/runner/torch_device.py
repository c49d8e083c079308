"""The reference as a device: torch's plain operations on the CPU, and what it refuses."""

from __future__ import annotations

import torch

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError
from pagoda.runner.device import Device
from pagoda.runner.host_memory import host_memory, usable_cpus

DEFAULT_DTYPE = "float32"


def choose_reference_device(config: EngineConfig) -> Device:
    """Resolve `dtype` and `threads`, and set torch's threads.

    Raises `InvalidValueError` for a quantization, a KV cache in another format than `dtype`, and determinism.
    """
    if config.quantization != "none":
        limit = "none on device reference; devices cpu and cuda have it"
        raise InvalidValueError("quantization", config.quantization, limit)
    dtype = DEFAULT_DTYPE if config.dtype == "auto" else config.dtype
    if config.kv_cache_dtype not in ("auto", dtype):
        limit = "auto on device reference, whose KV cache is as dtype says; int8 is for device cpu, fp8 for cuda"
        raise InvalidValueError("kv_cache_dtype", config.kv_cache_dtype, limit)
    if config.deterministic:
        limit = "false on device reference, where torch groups sums by what is in a step; devices cpu and cuda have it"
        raise InvalidValueError("deterministic", config.deterministic, limit)
    threads = config.threads or usable_cpus()
    torch.set_num_threads(threads)
    return Device("reference", dtype, host_memory().usable_bytes, threads, kv_dtype=dtype)
