"""An NVIDIA GPU as a device: whether there is one that can be used, and what it refuses."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.runner.device import Device
from pagoda.runner.host_memory import usable_cpus

DEFAULT_DTYPE = "bfloat16"
# bfloat16, and asynchronous copies to shared memory, begin with this compute capability (Ampere).
LEAST_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class Gpu:
    """capability: (major, minor) of its compute capability. free_bytes: of its memory, once this process uses it."""

    name: str
    capability: tuple[int, int]
    free_bytes: int

    @property
    def is_usable(self) -> bool:
        return self.capability >= LEAST_CAPABILITY


def find_gpu() -> Gpu | None:
    """The GPU that torch would use; None where it finds none, or AMD's, which torch calls cuda too.

    Raises `PagodaError` for one that cannot be used now: all of its memory taken, or another process alone allowed.
    """
    if torch.version.hip is not None or not torch.cuda.is_available():
        return None
    try:
        free_bytes, _ = torch.cuda.mem_get_info()
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    except RuntimeError as error:
        raise PagodaError(
            f"torch finds a GPU but cannot use it: {_first_line(error)}; device cpu needs none"
        ) from error
    return Gpu(properties.name, (properties.major, properties.minor), free_bytes)


def start_triton() -> None:
    """Have Triton load its link to the driver, which a C compiler makes where Triton's cache does not have it.

    Raises `PagodaError` where that fails, which otherwise the first kernel would, once the weights are loaded.
    """
    try:
        from triton.runtime import driver

        driver.active.get_current_device()
    except Exception as error:  # Compilers that fail, drivers that do not fit, and what else Triton meets.
        needs = "it needs a C compiler (gcc, clang or what CC names) and Python's headers (python3-dev)"
        raise PagodaError(f"device cuda: Triton cannot start: {_first_line(error)}; {needs}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def choose_cuda_device(config: EngineConfig, gpu: Gpu | None) -> Device:
    """Resolve number formats and threads, and set torch's threads.

    Raises `InvalidValueError` where there is no GPU or one that is too old, and for formats of the KV cache that it has not;
    `PagodaError` without Triton.
    """
    if gpu is None:
        raise InvalidValueError("device", "cuda", "cpu or auto here: torch finds no CUDA device")
    if not gpu.is_usable:
        has, needs = (".".join(map(str, capability)) for capability in (gpu.capability, LEAST_CAPABILITY))
        limit = f"cpu or auto here: {gpu.name} has compute capability {has}, the kernels need {needs} or above"
        raise InvalidValueError("device", "cuda", limit)
    if importlib.util.find_spec("triton") is None:
        raise PagodaError(
            "device cuda needs Triton, which is not installed: pip install 'triton>=3.6', or choose device cpu"
        )
    dtype = DEFAULT_DTYPE if config.dtype == "auto" else config.dtype
    if config.kv_cache_dtype not in ("auto", "fp8", dtype):
        limit = f"auto or fp8 on device cuda with dtype {dtype}; int8 is for device cpu"
        raise InvalidValueError("kv_cache_dtype", config.kv_cache_dtype, limit)
    threads = config.threads or usable_cpus()
    torch.set_num_threads(threads)
    return Device(
        "cuda",
        dtype,
        gpu.free_bytes,
        threads,
        kv_dtype=dtype if config.kv_cache_dtype == "auto" else config.kv_cache_dtype,
        quantization=None if config.quantization == "none" else config.quantization,
        is_deterministic=config.deterministic,
        gpu=gpu.name,
    )
