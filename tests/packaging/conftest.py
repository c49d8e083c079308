"""One build for all tests here: from an sdist, by `make wheel`, on a machine without a compiler. And its installation."""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.bare_machine import ROOT, run, without_compilers


@dataclass(frozen=True)
class Built:
    """source: the unpacked sdist that the wheel was built in. environment: of the machine that built it."""

    source: Path
    wheel: Path
    environment: dict[str, str]

    @property
    def objects(self) -> Path:
        return self.source / ".venv" / "build" / "CMakeFiles"

    @property
    def compiler(self) -> Path:
        return self.source / ".venv" / "zig" / "c++"


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sdist of this checkout, unpacked."""
    directory = tmp_path_factory.mktemp("sdist")
    build = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"
    ended = run([sys.executable, "-c", build, directory], cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    archive = directory / ended.stdout.split()[-1]
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    yield directory / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    env = without_compilers(tmp_path_factory.mktemp("bare") / "bin")
    # Or it would grow by a library for every place in which ziglang ever was.
    env["ZIG_GLOBAL_CACHE_DIR"] = str(source / "cache")
    ended = run(["make", "wheel", f"PYTHON={sys.executable}"], cwd=source, env=env, seconds=1800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    return Built(source, wheel, env)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment that has the wheel and what it needs, and nothing else."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    env = without_compilers(environment.parent / "bin")
    for command in (
        [sys.executable, "-m", "venv", environment],
        [environment / "bin" / "python", "-m", "pip", "install", built.wheel, "-c", ROOT / "constraints.txt"],
    ):
        ended = run(command, cwd=environment.parent, env=env, seconds=900)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    yield environment
    shutil.rmtree(environment)
