"""Every kernel's variants compile for the GPUs that are promised, fit their shared memory and do not spill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from tests.kernels.triton_aot import files

ROOT = Path(__file__).parents[2]


def compiled(*names: str) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.triton_aot", *names, "--json"]
    if os.environ.get("PAGODA_SOAK"):
        command.append("--everywhere")
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert run.stdout, run.stderr
    results: list[dict[str, Any]] = json.loads(run.stdout)
    return results


@pytest.fixture(scope="module")
def kernels() -> list[dict[str, Any]]:
    return compiled()


@pytest.mark.slow
@pytest.mark.parametrize("file", files())
def test_every_variant_fits(file: str, kernels: list[dict[str, Any]]) -> None:
    of_file = [each for each in kernels if each["file"] == file]
    assert of_file
    assert [each for each in of_file if each["problem"]] == []


def test_what_does_not_fit_is_refused() -> None:
    problems: dict[str, dict[int, str]] = {}
    for each in compiled("tests.kernels.aot_faults"):
        problems.setdefault(each["label"], {})[each["architecture"]] = each["problem"]

    assert set(problems["fits"].values()) == {""}
    assert "bytes of shared memory of 101,376" in problems["too much shared memory"][89]
    assert all("spills" in problem for problem in problems["spills"].values())
    assert all("no_such_function" in problem for problem in problems["does not compile"].values())
    assert all("unknown: {'out'}" in problem for problem in problems["a parameter is missing"].values())
