"""The same sources compile for Arm, where the portable lanes are what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.bare_machine import ROOT, run
from tests.packaging.conftest import Built

FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno", "-c")


@pytest.mark.slow
def test_compiles_for_arm(built: Built, tmp_path: Path) -> None:
    # All but the bindings, whose headers are those of this machine's Python.
    sources = [path for path in sorted((ROOT / "csrc").rglob("*.cpp")) if not path.name.startswith("module")]
    assert len(sources) > 20
    for path in sources:
        command = [built.compiler, "-target", "aarch64-linux-gnu", *FLAGS, path, "-o", tmp_path / "object.o"]
        ended = run(command, cwd=tmp_path, env=built.environment)
        assert ended.returncode == 0, ended.stderr
