"""How many physical cores this process may keep busy. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

from pagoda.runner.host_memory import ROOT, usable_cpus


def usable_cores(root: Path = ROOT) -> int:
    """Physical cores, at least 1: those of the CPUs in this process's affinity, and at most the whole CPUs of its quota.

    Two CPUs of one core (SMT) share its arithmetic units and its way to memory: a second thread there wins nothing in a
    product and makes every barrier wait for the slower of the two. Where the system does not tell which CPUs share a core
    (/sys/devices/system/cpu, Linux only), each counts as one. root: where `proc` and `sys` are, for tests.
    """
    cpus = usable_cpus(root)
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    if affinity is None:
        return cpus
    cores = {_siblings(root, cpu) for cpu in affinity(0)}
    return max(1, min(len(cores), cpus))


def _siblings(root: Path, cpu: int) -> str:
    """What all CPUs of one core have in common: the list of them, such as "0,64" or "0-1"."""
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:
        return path.read_text(encoding="ascii").strip() or f"{cpu}"
    except (OSError, ValueError):
        return f"{cpu}"
