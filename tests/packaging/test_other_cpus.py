"""One wheel for every x86-64: on an older one it picks what that can execute, and computes what this machine does with it.

The older ones are emulated by qemu-user, which has every instruction set up to AVX2.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from pagoda import _native
from tests.packaging.bare_machine import ROOT, run

QEMU = shutil.which("qemu-x86_64")
# What is turned off is what qemu does not emulate of them, and would warn of.
CPUS = {
    "portable": "Nehalem",
    "avx2": "Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-rtm,-invpcid",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 is emulated here"),
    pytest.mark.skipif(QEMU is None, reason="qemu-x86_64 is not installed (Debian, Ubuntu: apt install qemu-user)"),
]
here = pytest.mark.parametrize("best", [name for name in CPUS if name in _native.instruction_sets()])
lacking = pytest.mark.parametrize("best", [name for name in CPUS if name not in _native.instruction_sets()])


def emulated(best: str) -> list[str | Path]:
    assert QEMU is not None
    return [QEMU, "-cpu", CPUS[best]]


def numbers(command: list[str | Path], model: str, **env: str) -> Any:
    ended = run([*command, "-m", "tests.packaging.numbers", model], cwd=ROOT, env=os.environ | env, seconds=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@here
def test_an_older_processor_computes_the_same(installed: Path, tiny_model: str, best: str) -> None:
    python = installed / "bin" / "python"
    older = numbers([*emulated(best), python], tiny_model)
    assert older.pop("sets") == [name for name in CPUS if name in (best, "portable")][::-1]
    this = numbers([python], tiny_model, PAGODA_CPU_ISA=best)
    del this["sets"]
    assert older == this


@lacking
def test_kernels_that_this_machine_cannot_execute(installed: Path, best: str) -> None:
    # The installed package comes first, then what the tests import.
    (packages,) = (installed / "lib").glob("python*/site-packages")
    path = os.pathsep.join([str(packages), sysconfig.get_path("purelib")])
    files = [
        f"tests/native/test_{name}.py" for name in ("elementwise", "linear_dense", "linear_quantized", "attention")
    ]
    command = [*emulated(best), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", best, *files]
    ended = run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, seconds=1800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
