"""The machine, and what is installed on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess

import torch

from gpu.context import Context
from gpu.sizes import FULL

PACKAGES = ("torch", "triton", "numpy", "tokenizers", "safetensors", "jinja2", "pytest", "transformers")
QUERY = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,memory.total"


def run(context: Context) -> None:
    """Raises SystemExit where there is nothing to measure on."""
    report = context.report
    if context.sizes is FULL and not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here; `benchmarks/gpu.sh --tiny` runs without one")
    report(
        python=platform.python_version(),
        system=platform.platform(),
        cpus=os.cpu_count(),
        packages={name: _version(name) for name in PACKAGES},
    )
    if smi := shutil.which("nvidia-smi"):
        asked = [smi, f"--query-gpu={QUERY}", "--format=csv,noheader"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
        report(nvidia_smi=dict(zip(QUERY.split(","), told.split(", "), strict=False)))
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        report(
            gpu=properties.name,
            capability=f"{properties.major}.{properties.minor}",
            multiprocessors=properties.multi_processor_count,
            l2_bytes=properties.L2_cache_size,
            free_bytes=free,
            total_bytes=total,
            cuda=torch.version.cuda,
        )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
