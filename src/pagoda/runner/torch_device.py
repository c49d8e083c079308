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


def has_cuda() -> bool:
    return torch.cuda.is_available()


def choose_torch_device(config: EngineConfig, kind: str) -> Device:
    """Resolve `dtype` and `threads` for "cuda" or "reference" (torch on the CPU), and set torch's threads.

    Raises `InvalidValueError` for cuda where there is no such device, and for a quantization; `PagodaError` without torch.
    """
    if config.quantization != "none":
        limit = f"none on device {kind}; the CPU's native kernels (device cpu) have it"
        raise InvalidValueError("quantization", config.quantization, limit)
    if kind == "cuda" and not has_cuda():
        raise InvalidValueError("device", kind, "cpu or auto here: torch finds no CUDA device")
    threads = config.threads or usable_cpus()
    torch.set_num_threads(threads)
    if kind == "reference":
        return Device(kind, _resolved(config, "float32"), host_memory().usable_bytes, threads)
    free_bytes, _ = torch.cuda.mem_get_info()
    return Device(kind, _resolved(config, "bfloat16"), free_bytes, threads)


def _resolved(config: EngineConfig, default: str) -> str:
    return default if config.dtype == "auto" else config.dtype
