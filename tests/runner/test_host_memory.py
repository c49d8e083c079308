"""What the process may use, from files as Linux has them."""

import os
from pathlib import Path

import pytest

from pagoda.runner.host_memory import host_memory, resident_bytes, usable_cpus

GIB = 1 << 30
V1_CPU = {"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(total: int, available: int) -> str:
    return (
        f"MemTotal:       {total // 1024} kB\nMemFree:  1 kB\nMemAvailable:   {available // 1024} kB\nCached:  7 kB\n"
    )


def test_without_limits_the_machines_memory_counts(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": meminfo(16 * GIB, 12 * GIB), "proc/self/cgroup": "0::/\n"})
    memory = host_memory(tmp_path)
    assert (memory.total_bytes, memory.usable_bytes) == (16 * GIB, 12 * GIB)


def test_a_cgroup_v2_limit_holds_and_its_page_cache_is_free(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": meminfo(16 * GIB, 12 * GIB),
            "proc/self/cgroup": "0::/app\n",
            "sys/fs/cgroup/app/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/app/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/app/memory.stat": f"anon {GIB}\nfile {2 * GIB}\ninactive_file {2 * GIB}\n",
        },
    )
    memory = host_memory(tmp_path)
    assert (memory.total_bytes, memory.usable_bytes) == (4 * GIB, 3 * GIB)


def test_the_tightest_of_nested_groups_holds(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/meminfo": meminfo(16 * GIB, 12 * GIB),
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": "4096\n",
        },
    )
    memory = host_memory(tmp_path)
    assert (memory.total_bytes, memory.usable_bytes) == (2 * GIB, GIB)


def test_a_cgroup_v1_limit_holds_and_its_unlimited_is_none(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": meminfo(16 * GIB, 12 * GIB),
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n0::/x\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{6 * GIB}\n",
        "sys/fs/cgroup/memory/x/memory.usage_in_bytes": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory/x/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}\n",
    }
    memory = host_memory(write(tmp_path, files))
    assert (memory.total_bytes, memory.usable_bytes) == (6 * GIB, 5 * GIB)


def test_a_path_of_the_host_falls_back_to_the_containers_mount(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": meminfo(16 * GIB, 12 * GIB),
        "proc/self/cgroup": "0::/docker/0123/../..\n",
        "sys/fs/cgroup/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/memory.current": f"{2 * GIB}\n",
    }
    memory = host_memory(write(tmp_path, files))
    assert (memory.total_bytes, memory.usable_bytes) == (GIB, 0)


def test_unreadable_figures_are_no_limit(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": meminfo(16 * GIB, 12 * GIB) + "nonsense\n",
        "proc/self/cgroup": "no cgroup line\n0::/\n",
        "sys/fs/cgroup/memory.max": "-5\n",
        "sys/fs/cgroup/cpu.max": "100000 0\n",
    }
    write(tmp_path, files)
    assert host_memory(tmp_path).usable_bytes == 12 * GIB
    assert usable_cpus(tmp_path) == usable_cpus(tmp_path / "nothing here")


def test_without_proc_the_system_still_has_memory(tmp_path: Path) -> None:
    memory = host_memory(tmp_path)
    assert 0 < memory.usable_bytes <= memory.total_bytes
    assert resident_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "6400000 100000\n"}, 8),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/\n", **V1_CPU, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n"}, 3),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/\n", **V1_CPU, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, 8),
    ],
)
def test_cpu_quotas_count_whole_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert usable_cpus(write(tmp_path, files)) == cpus


def test_this_process_holds_some_memory() -> None:
    resident = resident_bytes()
    assert resident is None or 1 << 20 < resident < host_memory().total_bytes
    assert usable_cpus() >= 1
