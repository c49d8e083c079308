"""`--device this`: measured once, saved where the user's cache is, read back with suspicion."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagoda.cli import bench_limits, this_machine
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.planning.formats import FORMATS
from pagoda.progress import silent
from pagoda.runner.host_cores import usable_cores
from pagoda.runner.host_memory import host_memory
from tests.cli.conftest import Pagoda

REPORT = {
    "threads": 3,
    "instruction_set": "avx2",
    "read_bandwidth": 3e10,
    "peak_operations": {"int8": 9e11},
    "format_ceilings": {"Q4_0": 7e11, "BF16": 4.5e11},
}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PAGODA_CPU_ISA", raising=False)
    return tmp_path / "pagoda"


def damaged(change: Callable[[dict[str, Any]], object]) -> Path:
    path = this_machine.save_limits(REPORT)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_what_was_saved_is_the_device(cache: Path) -> None:
    path = this_machine.save_limits(REPORT)
    assert path.parent == cache
    device = this_machine.saved_limits(path, 3)
    assert device.name.startswith("this machine (")
    assert "avx2" in device.name
    assert (device.bandwidth, device.peak_flops) == (3e10, {"Q4_0": 7e11, "BF16": 4.5e11})
    assert device.memory_bytes == pytest.approx(host_memory().usable_bytes, rel=0.2)
    assert list(cache.iterdir()) == [path]


def test_without_anything_saved_it_is_measured_and_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_limits, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(bench_limits, "FORMATS", {"Q4_0": FORMATS["Q4_0"]})
    monkeypatch.setattr(bench_limits, "ROUNDS", 1)
    monkeypatch.setattr(bench_limits, "READ_SECONDS", 0.0)
    device = this_machine.this_machine(silent)
    path = this_machine.limits_path(usable_cores())
    assert f"Saved the limits of this machine to {path}" in capsys.readouterr().err
    monkeypatch.setattr(this_machine, "measured_limits", None)  # must not be called again
    again = this_machine.this_machine(silent)
    # How much memory is free differs from moment to moment.
    assert replace(again, memory_bytes=device.memory_bytes) == device
    assert set(device.peak_flops) == {"Q4_0"}


def test_what_cannot_be_saved_is_used_all_the_same(
    monkeypatch: pytest.MonkeyPatch, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.write_text("a file where the folder would be")
    monkeypatch.setattr(this_machine, "measured_limits", lambda threads, bars: {**REPORT, "threads": threads})
    device = this_machine.this_machine(silent)
    assert device.bandwidth == REPORT["read_bandwidth"]
    assert f"cannot be saved, so the next command measures again: {cache}" in capsys.readouterr().err


def test_the_command_saves_when_asked(pagoda: Pagoda, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_limits, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(bench_limits, "FORMATS", {"Q4_0": FORMATS["Q4_0"]})
    monkeypatch.setattr(bench_limits, "ROUNDS", 1)
    monkeypatch.setattr(bench_limits, "READ_SECONDS", 0.0)
    pagoda("bench", "limits", "--threads", "1", "--json")
    assert not cache.exists()
    report = json.loads(pagoda("bench", "limits", "--threads", "1", "--save", "--json").stdout)
    saved = this_machine.saved_limits(this_machine.limits_path(1), 1)
    assert saved.bandwidth == report["read_bandwidth"]


def test_other_threads_instruction_sets_and_versions_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {this_machine.limits_path(1), this_machine.limits_path(2)}
    monkeypatch.setenv("PAGODA_CPU_ISA", "avx2")
    paths.add(this_machine.limits_path(2))
    monkeypatch.setattr(this_machine, "__version__", "99")
    paths.add(this_machine.limits_path(2))
    assert len(paths) == 4


def test_a_relative_cache_folder_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert this_machine.cache_folder() == Path("/home/somebody/.cache/pagoda")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda saved: saved.update(read_bandwidth=float("nan")), "read_bandwidth"),
        (lambda saved: saved.update(read_bandwidth=-1), "read_bandwidth"),
        (lambda saved: saved.update(read_bandwidth="fast"), "read_bandwidth"),
        (lambda saved: saved.update(threads=4), "threads"),
        (lambda saved: saved.update(version="0.0.1"), "version"),
        (lambda saved: saved.update(processor="another"), "processor"),
        (lambda saved: saved.update(format="pagoda-step-times"), "format"),
        (lambda saved: saved.update(format_version=2), "format_version"),
        (lambda saved: saved.update(format_ceilings=[1]), "format_ceilings"),
        (lambda saved: saved.update(format_ceilings={"Q9": 1e9}), "format_ceilings"),
        (lambda saved: saved.update(format_ceilings={"Q4_0": 1e300}), "format_ceilings.Q4_0"),
        (lambda saved: saved.pop("instruction_set"), "instruction_set"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(change: Callable[[dict[str, Any]], object], field: str) -> None:
    path = damaged(change)
    with pytest.raises(InvalidValueError) as refused:
        this_machine.saved_limits(path, 3)
    assert refused.value.field == f"{path}: {field}"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20)])
def test_a_file_that_is_no_such_file_is_refused(content: bytes) -> None:
    path = this_machine.save_limits(REPORT)
    path.write_bytes(content)
    with pytest.raises(PagodaError, match=r"limits-\w+\.json: "):
        this_machine.saved_limits(path, 3)


def test_reading_back_takes_neither_numpy_nor_the_native_module() -> None:
    this_machine.save_limits({**REPORT, "threads": usable_cores()})
    code = (
        "import sys; from pagoda.cli.this_machine import this_machine; from pagoda.progress import silent;"
        "print(this_machine(silent).bandwidth, [m for m in sys.modules if m in ('numpy', 'pagoda._native', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("30000000000.0 []", "")
