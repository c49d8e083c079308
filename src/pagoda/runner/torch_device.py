"""The device as torch sees it."""

from __future__ import annotations

try:
    import torch
except ImportError:
    from pagoda.errors import PagodaError

    raise PagodaError(
        "devices cuda and reference need torch, which is not installed: pip install 'torch>=2.11'"
    ) from None

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError
from pagoda.runner.device import Device
from pagoda.runner.host_memory import host_memory, usable_cpus

DEFAULT_DTYPES = {"reference": "float32", "cuda": "bfloat16"}


def has_cuda() -> bool:
    return torch.cuda.is_available()


def choose_torch_device(config: EngineConfig, kind: str) -> Device:
    """Resolve `dtype` and `threads` for "cuda" or "reference" (torch on the CPU), and set torch's threads.

    Raises `InvalidValueError` for cuda where there is no such device, for a quantization, and for a KV cache
    in another format; `PagodaError` without torch.
    """
    if config.quantization != "none":
        limit = f"none on device {kind}; the CPU's native kernels (device cpu) have it"
        raise InvalidValueError("quantization", config.quantization, limit)
    if config.kv_cache_dtype not in ("auto", _resolved(config, DEFAULT_DTYPES[kind])):
        limit = f"auto on device {kind}, whose KV cache is as dtype says; int8 is for device cpu"
        raise InvalidValueError("kv_cache_dtype", config.kv_cache_dtype, limit)
    if kind == "cuda" and not has_cuda():
        raise InvalidValueError("device", kind, "cpu or auto here: torch finds no CUDA device")
    threads = config.threads or usable_cpus()
    torch.set_num_threads(threads)
    if kind == "reference":
        return Device(kind, _resolved(config, DEFAULT_DTYPES[kind]), host_memory().usable_bytes, threads)
    free_bytes, _ = torch.cuda.mem_get_info()
    return Device(kind, _resolved(config, DEFAULT_DTYPES[kind]), free_bytes, threads)


def _resolved(config: EngineConfig, default: str) -> str:
    return default if config.dtype == "auto" else config.dtype
