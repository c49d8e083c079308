"""Where nothing can compile, building ends in one sentence that says what to install."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.packaging.bare_machine import ROOT, run, without_compilers

CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")


# Build tools tell CMake, by CXX, of the compiler that Python was made with.
@pytest.mark.parametrize("told", [{}, {"CXX": "g++ -pthread"}, {"CXX": "/usr/lib/missing/c++"}], ids=str)
def test_one_sentence_says_what_to_install(tmp_path: Path, told: dict[str, str]) -> None:
    assert CMAKE is not None
    ended = run(
        [CMAKE, "-S", ROOT, "-B", tmp_path / "build"], cwd=tmp_path, env=without_compilers(tmp_path / "bin") | told
    )
    assert ended.returncode != 0
    assert "needs a C++17 compiler, and there is none: install g++ or clang++" in " ".join(ended.stderr.split())
    assert "CMAKE_CXX_COMPILER" not in ended.stderr
