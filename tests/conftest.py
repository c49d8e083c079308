"""What tests of several parts share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tiny_model import write_tiny_model

# Without a GPU the kernels for one run in Triton's interpreter, over CPU tensors. Triton looks at this when it is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny LLaMA with random weights and a byte-level tokenizer, as a directory."""
    directory: Path = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    return str(directory)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones last, in their order."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
