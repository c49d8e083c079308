"""The device as torch sees it."""

from __future__ import annotations

try:
    import torch
except ImportError:
    from pagoda.errors import PagodaError

    raise PagodaError("execution needs torch, which is not installed: pip install 'pagoda-llm[torch]'") from None

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError
from pagoda.runner.device import Device
from pagoda.runner.host_memory import host_memory, usable_cpus


def choose_device(config: EngineConfig) -> Device:
    """Resolve `device`, `dtype` and `threads`, and set torch's threads.

    Raises `InvalidValueError` for cuda where there is no such device, `PagodaError` without torch.
    """
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise InvalidValueError("device", "cuda", "cpu or auto here: torch finds no CUDA device")
    threads = config.threads or usable_cpus()
    torch.set_num_threads(threads)
    if config.device == "cpu" or not has_cuda:
        return Device("cpu", "float32" if config.dtype == "auto" else config.dtype, host_memory().usable_bytes, threads)
    free_bytes, _ = torch.cuda.mem_get_info()
    return Device("cuda", "bfloat16" if config.dtype == "auto" else config.dtype, free_bytes, threads)
