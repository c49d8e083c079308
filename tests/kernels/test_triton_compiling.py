"""Kernels are compiled ahead through their own launchers, without being launched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]


def test_what_would_be_launched_is_compiled_and_loaded_once_and_not_launched(tmp_path: Path) -> None:
    # In a process of its own, as the interpreter takes the place of the compiler in this one.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.kernels.compile_ahead"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout, run.stderr
    result = json.loads(run.stdout)
    assert [name.rpartition(".")[2] for name in result["compiled"]] == ["_feed"]
    assert result["loaded"] == ["_feed"]
    assert result["ids"] == [-1, -1, -1]
