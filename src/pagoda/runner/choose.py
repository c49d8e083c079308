"""Which device a configuration means. Torch is imported only where it may be needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pagoda.config import EngineConfig
from pagoda.runner.device import Device
from pagoda.runner.host_memory import ROOT

# What a driver for NVIDIA GPUs leaves on Linux, in containers, and in Linux under Windows.
_DRIVER_TRACES = ("dev/nvidia*", "proc/driver/nvidia", "dev/dxg")


def choose_device(config: EngineConfig, root: Path = ROOT) -> Device:
    """Resolve `device` and what depends on it. "auto" is cuda where torch finds such a device, else cpu.

    Raises `InvalidValueError` for settings that the device does not have, `PagodaError` where what it needs is missing.
    root: where `dev` and `proc` are, for tests.
    """
    if config.device in ("cuda", "reference"):
        from pagoda.runner.torch_device import choose_torch_device

        return choose_torch_device(config, config.device)
    if config.device == "auto" and _may_have_cuda(root):
        from pagoda.runner.torch_device import choose_torch_device, has_cuda

        if has_cuda():
            return choose_torch_device(config, "cuda")
    from pagoda.runner.native_device import choose_native_device

    return choose_native_device(config)


def _may_have_cuda(root: Path) -> bool:
    """Whether it is worth importing torch, which takes more than a second, to look for a GPU."""
    driver = any(True for trace in _DRIVER_TRACES for _ in root.glob(trace))
    return driver and importlib.util.find_spec("torch") is not None
