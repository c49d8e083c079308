"""The base package: small, without torch, and all that generating and serving on a CPU takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pagoda.loading.default_model import default_model_path
from tests.packaging.bare_machine import run
from tests.server.process import SMALL, serving

pytestmark = pytest.mark.slow
MOST_BYTES = 250_000_000
# Those that come with every environment.
INSTALLERS = ("pip", "setuptools", "_distutils_hack", "distutils-precedence.pth")


def files(environment: Path) -> Iterator[Path]:
    (packages,) = (environment / "lib").glob("python*/site-packages")
    for path in packages.rglob("*"):
        if path.is_file() and not path.relative_to(packages).parts[0].startswith(INSTALLERS):
            yield path


def test_size_with_all_it_needs(installed: Path) -> None:
    assert sum(path.stat().st_blocks * 512 for path in files(installed)) <= MOST_BYTES


def test_needs_no_torch(installed: Path, tmp_path: Path) -> None:
    ended = run([installed / "bin" / "python", "-c", "import torch"], cwd=tmp_path)
    assert ended.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.smollm2
def test_generates(installed: Path, tmp_path: Path) -> None:
    command = [installed / "bin" / "pagoda", "generate", default_model_path(), "--prompt", "The capital of France is"]
    ended = run([*command, "--max-tokens", "8", "--temperature", "0"], cwd=tmp_path)
    assert (ended.returncode, "Paris" in ended.stdout) == (0, True), ended.stdout + ended.stderr


def test_serves(installed: Path, tiny_model: str) -> None:
    with serving(tiny_model, *SMALL, program=[str(installed / "bin" / "pagoda")]) as server:
        body = {"model": server.model, "prompt": "Hello", "max_tokens": 4, "temperature": 0}
        answer = httpx.post(f"{server.base_url}/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 4
