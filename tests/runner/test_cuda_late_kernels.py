"""Once a runner has warmed up, no step needs a kernel that is still to be compiled or loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("quantization", [(), ("int8",)])
def test_warm_up_knows_all_kernels(tiny_model: str, quantization: tuple[str, ...]) -> None:
    # In a process of its own, as the interpreter takes the place of the compiler in this one.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, "-m", "tests.runner.late_kernels", tiny_model, *quantization]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout, run.stderr
    result = json.loads(run.stdout)
    assert len(result["known"]) > 20
    assert result["late"] == result["loaded late"] == []
