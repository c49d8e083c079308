"""Kernels are compiled once for every instruction set, and none of that code can be taken for common code.

A function that is not in an instruction set's namespace (an inline one of a header) may be emitted by every object that uses
it; the linker keeps one of them, which could be the one with AVX-512, for everybody.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import Built
from tests.packaging.elf import shared_functions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF")
KINDS = ("portable", "avx2", "avx512")


def assert_all_in_their_namespaces(objects: Path) -> None:
    found = {kind: sorted((objects / f"kernels_{kind}.dir").rglob("*.o")) for kind in KINDS}
    assert found["portable"]
    for kind, paths in found.items():
        own = re.compile(rf"_Z\w*N\w*6pagoda{len(kind)}{kind}\w+")
        names = {name for path in paths for name in shared_functions(path)}
        assert not paths or any(own.fullmatch(name) for name in names)
        assert [name for name in names if not own.fullmatch(name)] == []


@pytest.mark.slow
def test_as_ziglang_compiles_them(built: Built) -> None:
    assert_all_in_their_namespaces(built.objects)


@pytest.mark.skipif(not (Path(sys.prefix) / "build" / "CMakeFiles").exists(), reason="not installed by make")
def test_as_they_are_installed_here() -> None:
    assert_all_in_their_namespaces(Path(sys.prefix) / "build" / "CMakeFiles")
