"""Every command of docs/simulation.md runs as it is written there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pagoda.cli.this_machine import save_limits
from pagoda.runner.host_cores import usable_cores
from tests.cli.conftest import Pagoda, pagoda

__all__ = ["pagoda"]

TEXT = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^pagoda (simulate .*)$", TEXT, re.MULTILINE)


@pytest.fixture
def known_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's limits, as if they had been measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ceilings = dict.fromkeys(("F32", "BF16", "Q4_1", "Q8_0"), 400e9)
    report = {"threads": usable_cores(), "instruction_set": "avx2", "read_bandwidth": 30e9, "format_ceilings": ceilings}
    save_limits(report)


@pytest.mark.usefixtures("known_machine")
@pytest.mark.parametrize(
    "command", [pytest.param(line, marks=[pytest.mark.smollm2] if "smollm2" in line else []) for line in COMMANDS]
)
def test_a_command_runs(command: str, pagoda: Pagoda) -> None:
    done = pagoda(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    assert "time to first token" in done.stdout or "TTFT" in done.stdout


def test_there_are_three_cases() -> None:
    assert len(COMMANDS) >= 8
    for model in ("smollm2", "llama-3-8b", "llama-3-70b"):
        assert any(model in command for command in COMMANDS)
