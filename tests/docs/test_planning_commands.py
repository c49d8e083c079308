"""docs/planning.md: each command of the page runs, and prints every line that the page shows under it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pagoda.cli import this_machine
from pagoda.planning.formats import FORMATS
from pagoda.runner.host_cores import usable_cores
from tests.cli.conftest import Pagoda, pagoda

__all__ = ["pagoda"]

PAGE = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
BLOCKS = [block.splitlines() for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]
PLANS = [block for block in BLOCKS if block[0].startswith("$ pagoda plan ")]


def squeezed(text: str) -> str:
    """Without the spaces and line ends that a table is laid out with."""
    return " ".join(text.split())


def test_the_page_has_its_cases() -> None:
    assert len(PLANS) >= 8
    assert all(len(block) > 1 for block in PLANS)


@pytest.mark.smollm2
@pytest.mark.parametrize("block", PLANS, ids=lambda block: block[0][14:60])
def test_the_command_prints_what_the_page_shows(
    block: list[str], pagoda: Pagoda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ceilings = dict.fromkeys(FORMATS, 6e11)
    report = {"threads": usable_cores(), "instruction_set": "avx2", "read_bandwidth": 3e10, "peak_operations": {}}
    this_machine.save_limits({**report, "format_ceilings": ceilings})
    finished = pagoda(*shlex.split(block[0][2:])[1:])
    assert finished.returncode == 0, finished.stderr
    shown = squeezed(finished.stdout)
    assert [line for line in block[1:] if squeezed(line) not in shown] == []
