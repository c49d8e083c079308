"""Which device, how many threads and which instruction set a configuration means."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pagoda.config import EngineConfig
from pagoda.errors import InvalidValueError, PagodaError
from pagoda.runner import cuda_device
from pagoda.runner.choose import choose_device
from pagoda.runner.cuda_device import Gpu, choose_cuda_device, find_gpu, start_triton
from pagoda.runner.host_cores import usable_cores
from pagoda.runner.native_device import FORCED_ISA, choose_instruction_set

SETS = ("avx512", "avx2", "portable")


def topology(root: Path, *cores: str) -> Path:
    """A machine whose cores have these CPUs: "0-1" and "2,6" and so on."""
    for siblings in cores:
        first, last = int(siblings.replace("-", ",").split(",")[0]), int(siblings.replace("-", ",").split(",")[-1])
        for cpu in range(first, last + 1) if "-" in siblings else {first, last}:
            path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            path.parent.mkdir(parents=True)
            path.write_text(siblings + "\n")
    return root


FOUR_BY_TWO = ("0,4", "1,5", "2,6", "3,7")


@pytest.mark.parametrize(
    ("cores", "affinity", "expected"),
    [
        (("0", "1", "2", "3"), range(4), 4),
        (FOUR_BY_TWO, range(8), 4),
        (("0-1", "2-3", "4-5"), range(6), 3),
        (FOUR_BY_TWO, (0, 4, 1), 2),
        (FOUR_BY_TWO, (7,), 1),
        ((), range(3), 3),
    ],
)
def test_threads_are_physical_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: tuple[str, ...], affinity: range, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(affinity), raising=False)
    assert usable_cores(topology(tmp_path, *cores)) == expected


@pytest.mark.parametrize(("quota", "expected"), [("max", 4), ("250000", 2), ("50000", 1), ("800000", 4)])
def test_no_more_threads_than_the_quota_keeps_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    topology(tmp_path, *FOUR_BY_TWO)
    for name, text in {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == expected


def test_the_best_instruction_set_is_chosen_and_another_can_be_forced() -> None:
    assert choose_instruction_set(SETS, {}) == "avx512"
    assert choose_instruction_set(SETS, {FORCED_ISA: ""}) == "avx512"
    assert choose_instruction_set(SETS, {FORCED_ISA: "portable"}) == "portable"
    for forced in ("avx512", "sse"):
        with pytest.raises(InvalidValueError, match=rf"{FORCED_ISA}: got '{forced}'.*: avx2, portable$"):
            choose_instruction_set(("avx2", "portable"), {FORCED_ISA: forced})


def test_settings_of_the_torch_devices_are_refused_on_the_cpu(tmp_path: Path) -> None:
    for field, value in (("dtype", "bfloat16"), ("block_size", 24)):
        with pytest.raises(InvalidValueError, match=rf"{field}: got .*device reference"):
            choose_device(EngineConfig(device="cpu", **{field: value}), tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [("quantization", "int8", "none"), ("kv_cache_dtype", "fp8", "auto"), ("deterministic", True, "false")],
)
def test_what_the_reference_does_not_have_is_refused(tmp_path: Path, field: str, value: object, limit: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{field}: got {value!r}, must be {limit} on device reference"):
        choose_device(EngineConfig(device="reference", **{field: value}), tmp_path)


@pytest.mark.parametrize("field", ["quantization", "kv_cache_dtype"])
def test_fp8_is_refused_on_the_cpu(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{field}: got 'fp8', must be .* on the CPU.*fp8 is for device cuda"):
        choose_device(EngineConfig(device="cpu", **{field: "fp8"}), tmp_path)


def test_the_cpu_is_deterministic_whether_that_is_asked_or_not(tmp_path: Path) -> None:
    asked, unasked = (
        choose_device(EngineConfig(device="cpu", deterministic=value), tmp_path) for value in (True, False)
    )
    assert replace(asked, usable_bytes=0) == replace(unasked, usable_bytes=0)
    assert asked.is_deterministic


def test_quantized_weights_on_the_cpu(tmp_path: Path) -> None:
    device = choose_device(EngineConfig(device="cpu", quantization="int4"), tmp_path)
    assert (device.dtype, device.quantization) == ("int4", "int4")


def test_the_cache_is_int8_on_the_cpu_only(tmp_path: Path) -> None:
    kinds = {
        kind: choose_device(EngineConfig(device="cpu", kv_cache_dtype=kind), tmp_path).kv_dtype
        for kind in ("auto", "int8")
    }
    assert kinds == {"auto": "bfloat16", "int8": "int8"}
    with pytest.raises(InvalidValueError, match="kv_cache_dtype: got 'int8', must be auto on device reference"):
        choose_device(EngineConfig(device="reference", kv_cache_dtype="int8"), tmp_path)
    with pytest.raises(InvalidValueError, match="kv_cache_dtype: got 'bfloat16', must be auto on device reference"):
        choose_device(EngineConfig(device="reference", kv_cache_dtype="bfloat16"), tmp_path)
    same = EngineConfig(device="reference", dtype="bfloat16", kv_cache_dtype="bfloat16")
    assert choose_device(same, tmp_path).dtype == "bfloat16"


def test_the_reference_is_torch_on_the_cpu(tmp_path: Path) -> None:
    device = choose_device(EngineConfig(device="reference", threads=1, dtype="bfloat16"), tmp_path)
    assert (device.kind, device.dtype, device.threads, device.element_bytes) == ("reference", "bfloat16", 1, 2)
    assert str(device) == "reference (bfloat16, 1 thread)"


H200 = Gpu("NVIDIA H200", (9, 0), 140 << 30)


def test_a_gpu_takes_bfloat16_and_the_memory_that_is_free() -> None:
    device = choose_cuda_device(EngineConfig(), H200)
    assert (device.kind, device.dtype, device.kv_dtype, device.quantization) == ("cuda", "bfloat16", "bfloat16", None)
    assert (device.usable_bytes, device.is_deterministic) == (140 << 30, False)
    assert str(device) == "cuda (NVIDIA H200, bfloat16)"


def test_everything_narrow_on_a_gpu() -> None:
    config = EngineConfig(dtype="float16", quantization="fp8", kv_cache_dtype="fp8", deterministic=True)
    device = choose_cuda_device(config, H200)
    assert (device.dtype, device.quantization, device.kv_dtype, device.is_deterministic) == (
        "float16",
        "fp8",
        "fp8",
        True,
    )
    assert str(device) == "cuda (NVIDIA H200, float16, fp8 weights, fp8 KV cache, deterministic)"


@pytest.mark.parametrize(("dtype", "kv"), [("auto", "int8"), ("float16", "bfloat16")])
def test_a_cache_that_a_gpu_does_not_have_is_refused(dtype: str, kv: str) -> None:
    with pytest.raises(InvalidValueError, match=f"kv_cache_dtype: got '{kv}', must be auto or fp8 on device cuda"):
        choose_cuda_device(EngineConfig(dtype=dtype, kv_cache_dtype=kv), H200)


def test_no_gpu_and_one_that_is_too_old_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="device: got 'cuda', must be cpu or auto here: torch finds no CUDA"):
        choose_cuda_device(EngineConfig(device="cuda"), None)
    with pytest.raises(InvalidValueError, match=r"Tesla T4 has compute capability 7\.5, the kernels need 8\.0"):
        choose_cuda_device(EngineConfig(device="cuda"), replace(H200, name="Tesla T4", capability=(7, 5)))


def test_a_gpu_that_cannot_be_used_now_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken() -> tuple[int, int]:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported elsewhere")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", taken)
    with pytest.raises(PagodaError, match=r"cannot use it: CUDA error: out of memory; device cpu needs none$"):
        find_gpu()


def test_a_gpu_of_amd_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert find_gpu() is None


def test_a_triton_without_a_compiler_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        @property
        def active(self) -> None:
            raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable")

    monkeypatch.setattr(pytest.importorskip("triton.runtime"), "driver", Driver())
    with pytest.raises(PagodaError, match=r"cannot start: Failed to find C compiler.*; it needs a C compiler \(gcc"):
        start_triton()


@pytest.mark.parametrize(("gpu", "kind"), [(None, "cpu"), (replace(H200, capability=(7, 5)), "cpu"), (H200, "cuda")])
def test_auto_is_a_gpu_where_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: Gpu | None, kind: str
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    monkeypatch.setattr(cuda_device, "find_gpu", lambda: gpu)
    assert choose_device(EngineConfig(), tmp_path).kind == kind


def test_threads_that_the_system_refuses() -> None:
    # In a process of its own, whose memory is too little for the stacks of a thousand.
    code = """
import resource
from pagoda import _native
from pagoda.errors import InvalidValueError
from pagoda.runner.native_threads import start_threads
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    start_threads(1000, _native.instruction_sets()[-1])
except InvalidValueError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "threads" in ended.stdout
    assert "1000" in ended.stdout
