"""The README's server: started as it says, its curl and openai examples answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.process import RunningServer, serving

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
ADDRESS = "http://localhost:8000"

pytestmark = [pytest.mark.slow, pytest.mark.smollm2]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    # What `make run` runs, but for the port, which may be taken here.
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "pagoda serve smollm2 --port $(PORT)" in recipe
    assert "PORT ?= 8000" in recipe
    with serving("smollm2") as running:
        yield running


def block(language: str, needle: str) -> str:
    (found,) = (code for kind, code in BLOCKS if kind == language and needle in code)
    return found


def test_curl(server: RunningServer) -> None:
    command = block("sh", "curl").replace(ADDRESS, server.url)
    assert server.url in command
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (choice,) = json.loads(done.stdout)["choices"]
    assert choice["message"]["content"].strip()


def test_openai(server: RunningServer) -> None:
    code = block("python", "from openai").replace(ADDRESS, server.url)
    assert server.url in code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "pagoda" in done.stdout.lower()
