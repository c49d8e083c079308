"""What a stage found out, on disk from the moment that it is known."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Report:
    """Figures by name, in one JSON file that is whole at any time: a stage may be killed when its time is up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._figures: dict[str, Any] = {}

    def __call__(self, **figures: Any) -> None:
        self._figures.update(figures)
        write_json(self._path, self._figures)
        print(json.dumps(figures), flush=True)


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Written beside, then moved into its place."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    os.replace(beside, path)


def read_json(path: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return figures
