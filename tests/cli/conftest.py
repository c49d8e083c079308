from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagoda.cli.main import main
from tests.tiny_model import write_tiny_model


@dataclass(frozen=True)
class Finished:
    returncode: int
    stdout: str
    stderr: str


Pagoda = Callable[..., Finished]


@pytest.fixture
def pagoda(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pagoda:
    """Runs the command in this process, which has imported torch already. stdin is never a terminal."""

    def run(*arguments: str | Path, stdin: str = "") -> Finished:
        monkeypatch.setattr(sys, "argv", ["pagoda", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Finished(ended.value.code, shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))
