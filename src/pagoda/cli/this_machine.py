"""`--device this`: the machine's own ceilings, measured once by `pagoda bench limits --save` and read back without measuring.

One file for each processor, number of threads, forced instruction set and version of Pagoda, in the user's cache folder. What
the memory holds is not saved: it is asked anew each time.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagoda import checks
from pagoda.cli.console import note
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.planning.formats import FORMATS
from pagoda.planning.hardware import Hardware
from pagoda.planning.saved_file import read_saved, save
from pagoda.progress import Progress
from pagoda.runner.host_cores import usable_cores
from pagoda.runner.host_memory import host_memory
from pagoda.version import __version__

KIND = "pagoda-limits"
KIND_VERSION = 1
FORCED_ISA = "PAGODA_CPU_ISA"
CPUINFO = Path("/proc/cpuinfo")
# Far below and above any machine: what lies outside was not measured.
LEAST_RATE, MOST_RATE = 1e6, 1e18
MAX_TEXT = 200


def this_machine(bars: Progress) -> Hardware:
    """What was saved, or what is measured now, and saved where that is possible; says on stderr where.

    Raises `PagodaError` for a saved file that is damaged, and where nothing is saved and the native module is not built.
    """
    threads = usable_cores()
    path = limits_path(threads)
    if path.exists():
        return saved_limits(path, threads)
    note(f"The limits of this machine are not known yet; measuring them, which takes some seconds ({path}).")
    limits = _with_origin(measured_limits(threads, bars))
    try:
        _save(path, limits)
    except OSError as error:
        note(f"They cannot be saved, so the next command measures again: {error.filename}: {error.strerror}")
    return _hardware(path, limits, threads)


def measured_limits(threads: int, bars: Progress) -> dict[str, Any]:
    """The report of `pagoda bench limits`."""
    from pagoda.config import EngineConfig
    from pagoda.runner.native_device import choose_native_device

    device = choose_native_device(EngineConfig(threads=threads))  # says so where the native module is not built
    from pagoda.cli.bench_limits import Machine

    with Machine(threads, device.instruction_set or "") as machine:
        return machine.limits(bars)


def save_limits(report: Mapping[str, Any]) -> Path:
    """Keep the report of `pagoda bench limits` for `--device this`."""
    path = limits_path(report["threads"])
    _save(path, _with_origin(report))
    return path


def _with_origin(report: Mapping[str, Any]) -> dict[str, Any]:
    """With what must be the same for the figures to hold."""
    return {"processor": processor(), "version": __version__, **report}


def _save(path: Path, limits: Mapping[str, Any]) -> None:
    save(path, KIND, KIND_VERSION, limits)
    note(f"Saved the limits of this machine to {path}")


def saved_limits(path: Path, threads: int) -> Hardware:
    """The device that the file tells of. Raises `PagodaError` where it is not of this machine, or not sound."""
    return _hardware(path, read_saved(path, KIND, KIND_VERSION), threads)


def _hardware(path: Path, saved: Mapping[str, Any], threads: int) -> Hardware:
    for name, here in (("processor", processor()), ("threads", threads), ("version", __version__)):
        if saved.get(name) != here or isinstance(saved.get(name), bool):
            raise InvalidValueError(f"{path}: {name}", saved.get(name), f"{here!r}; run pagoda bench limits --save")
    instruction_set = checks.text(f"{path}: instruction_set", saved.get("instruction_set"), MAX_TEXT)
    bandwidth = checks.number(f"{path}: read_bandwidth", saved.get("read_bandwidth"), LEAST_RATE, MOST_RATE)
    ceilings = saved.get("format_ceilings")
    if not isinstance(ceilings, dict) or not ceilings:
        raise InvalidValueError(f"{path}: format_ceilings", ceilings, "operations a second by weight format")
    peaks = {}
    for name, rate in ceilings.items():
        checks.choice(f"{path}: format_ceilings", name, FORMATS)
        peaks[name] = checks.number(f"{path}: format_ceilings.{name}", rate, LEAST_RATE, MOST_RATE)
    return Hardware(
        f"this machine ({processor()}, {instruction_set}, {threads} threads)",
        host_memory().usable_bytes,
        bandwidth,
        peaks,
        source="measured by pagoda bench limits",
    )


def limits_path(threads: int) -> Path:
    """Where this machine's limits are kept, with so many threads."""
    about = "\n".join((processor(), os.environ.get(FORCED_ISA, ""), str(threads), __version__))
    return cache_folder() / f"limits-{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"


def cache_folder() -> Path:
    """Pagoda's part of the user's cache (XDG Base Directory Specification: a relative path there does not count)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "pagoda"
    try:
        return Path.home() / ".cache" / "pagoda"
    except RuntimeError:
        raise PagodaError("there is no home folder to keep measurements in; set XDG_CACHE_HOME") from None


def processor() -> str:
    """The processor's own name, and the system's for its kind."""
    name = ""
    try:
        with CPUINFO.open("rb") as file:
            lines = file.read(1 << 14).decode("ascii", "replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        pass  # not Linux
    return " ".join(filter(None, (name or platform.processor(), platform.machine())))[:MAX_TEXT]
