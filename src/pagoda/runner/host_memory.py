"""What this process may use of the machine: memory and CPUs, limits of containers respected. Standard library only.

Linux: /proc/meminfo, and every control group the process is in, up to the root: the tightest limit holds
(kernel documentation: admin-guide/cgroup-v2, admin-guide/cgroup-v1/memory). Elsewhere: what `os.sysconf` tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes. total: the machine's memory or the tightest limit. usable: what this process could take now without harm."""

    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class _Group:
    """One control group: its directory, and which version of the interface it has."""

    path: Path
    version: int


def host_memory(root: Path = ROOT) -> HostMemory:
    """The memory there is for this process. root: where `proc` and `sys` are, for tests."""
    total, usable = _machine_memory(root)
    for group in _groups(root, "memory"):
        limit = _integer(group.path / ("memory.max" if group.version == 2 else "memory.limit_in_bytes"))
        if limit is None:
            continue
        used = _integer(group.path / ("memory.current" if group.version == 2 else "memory.usage_in_bytes")) or 0
        # The page cache counts as used but is given back when memory runs short.
        cache = _table(group.path / "memory.stat").get(
            "inactive_file" if group.version == 2 else "total_inactive_file", 0
        )
        total = min(total, limit)
        usable = min(usable, limit - max(0, used - cache))
    return HostMemory(total, max(0, usable))


def usable_cpus(root: Path = ROOT) -> int:
    """How many CPUs this process may keep busy, at least 1: its affinity, and the whole CPUs of the tightest quota.

    A quota of 2.5 gives 2: a third thread would be stopped for half of the time, and the others would wait for it.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    for group in _groups(root, "cpu"):
        quota = _quota(group)
        if quota is not None:
            cpus = min(cpus, int(quota))
    return max(1, cpus)


def resident_bytes(root: Path = ROOT) -> int | None:
    """Memory this process holds now; None where the system does not tell."""
    fields = _text(root / "proc/self/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 and fields[1].isdigit() else None


def _machine_memory(root: Path) -> tuple[int, int]:
    """(total, available) of the whole machine."""
    table = _table(root / "proc/meminfo")
    if "MemTotal" in table:
        total = table["MemTotal"] * 1024
        # Kernels before 3.14 have no MemAvailable.
        available = table.get("MemAvailable", table.get("MemFree", 0) + table.get("Cached", 0)) * 1024
        return total, min(total, available)
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    free = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else pages
    return page * pages, page * free


def _groups(root: Path, controller: str) -> Iterator[_Group]:
    """The groups of this process that may limit `controller`, innermost first, each followed by those around it."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            version, top = 2, mount
        elif controller in controllers.split(","):
            version, top = 1, mount / controller
        else:
            continue
        inner = [name for name in path.split("/") if name and name != ".."]
        # In a container the path may be the host's and not exist here; the mount's own files are then the limit.
        for depth in range(len(inner), -1, -1):
            yield _Group(top.joinpath(*inner[:depth]), version)


def _quota(group: _Group) -> float | None:
    """CPUs that the group may use, as a fraction; None without a limit."""
    if group.version == 2:
        fields = _text(group.path / "cpu.max").split()
    else:
        fields = [_text(group.path / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    # "max 100000" and -1 mean no limit.
    if len(fields) != 2 or not all(field.isdigit() and int(field) > 0 for field in fields):
        return None
    return int(fields[0]) / int(fields[1])


def _table(path: Path) -> dict[str, int]:
    """A file of lines "name number" or "name: number kB"."""
    table: dict[str, int] = {}
    for line in _text(path).splitlines():
        fields = line.replace(":", " ").split()
        if len(fields) > 1 and fields[1].isdigit():
            table[fields[0]] = int(fields[1])
    return table


def _integer(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """The file's text; empty where there is none, or it may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
