"""Which device a configuration means. Torch is imported only where it may be needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pagoda.config import EngineConfig
from pagoda.errors import PagodaError
from pagoda.runner.device import Device
from pagoda.runner.host_memory import ROOT

# What a driver for NVIDIA GPUs leaves on Linux, in containers, and in Linux under Windows.
_DRIVER_TRACES = ("dev/nvidia*", "proc/driver/nvidia", "dev/dxg")


def choose_device(config: EngineConfig, root: Path = ROOT) -> Device:
    """Resolve `device` and what depends on it. "auto" is cuda where torch finds such a device that can be used, else cpu.

    Raises `InvalidValueError` for settings that the device does not have, `PagodaError` where what it needs is missing.
    root: where `dev` and `proc` are, for tests.
    """
    if config.device in ("cuda", "reference") and importlib.util.find_spec("torch") is None:
        raise PagodaError("devices cuda and reference need torch, which is not installed: pip install 'torch>=2.11'")
    if config.device == "reference":
        from pagoda.runner.torch_device import choose_reference_device

        return choose_reference_device(config)
    if config.device == "cuda" or (config.device == "auto" and _may_have_cuda(root)):
        from pagoda.runner.cuda_device import choose_cuda_device, find_gpu

        gpu = find_gpu()
        if config.device == "cuda" or (gpu is not None and gpu.is_usable):
            return choose_cuda_device(config, gpu)
    from pagoda.runner.native_device import choose_native_device

    return choose_native_device(config)


def _may_have_cuda(root: Path) -> bool:
    """Whether it is worth importing torch, which takes more than a second, to look for a GPU."""
    driver = any(True for trace in _DRIVER_TRACES for _ in root.glob(trace))
    return driver and importlib.util.find_spec("torch") is not None
