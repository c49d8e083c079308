"""A batch that is killed at any moment goes on where it was: the real command, a real SIGKILL."""

import json
import random
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import pagoda, run
from tests.soak import soak_count

KILLS = soak_count(20)
SETTINGS = ("--max-tokens", "6", "--temperature", "0", "--max-num-seqs", "4", "--seed", "1", "--ignore-eos")


@pytest.mark.slow
def test_a_killed_batch_loses_and_doubles_nothing(tiny_model: Path, tmp_path: Path) -> None:
    source, target, whole = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    lines = [json.dumps({"prompt": f"Line {i}: é", "id": i}) for i in range(30)]
    lines[4], lines[11] = "{broken", json.dumps({"prompt": "x" * 1000})
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    finished = pagoda("generate", tiny_model, "--input", source, "--output", whole, *SETTINGS)
    assert finished.returncode == 1, finished.stderr
    assert "30 lines done, 2 of them failed" in finished.stderr
    size = whole.stat().st_size
    places = random.Random(3)

    for _ in range(KILLS):
        target.unlink(missing_ok=True)
        killed_at = places.randint(1, size - 1)
        first = places.randint(1, killed_at)
        for budget in (first, killed_at - first):  # killed twice: the resumed run too
            command = [sys.executable, "-m", "tests.cli.killed_run", str(max(budget, 1)), "generate", str(tiny_model)]
            killed = run(command, "--input", source, "--output", target, *SETTINGS)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        resumed = pagoda("generate", tiny_model, "--input", source, "--output", target, *SETTINGS)
        assert resumed.returncode == 1, resumed.stderr
        assert read(target) == read(whole)


def read(path: Path) -> list[dict[str, object]]:
    """Sorted by line; a line done twice would be there twice."""
    return sorted((json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()), key=lambda e: e["line"])
