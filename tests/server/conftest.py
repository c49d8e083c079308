from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.server.process import SMALL, RunningServer, serving

Serve = Callable[..., AbstractContextManager[RunningServer]]


@pytest.fixture(scope="session")
def server(tiny_model: str) -> Iterator[RunningServer]:
    """One server of the tiny model (context 256 tokens, one token a byte), shared by all tests; its model is named `tiny`."""
    with serving(tiny_model, *SMALL, "--served-model-name", "tiny") as running:
        yield running


@pytest.fixture
def serve(tiny_model: str) -> Serve:
    """Starts another one, with options of its own: `with serve("--max-waiting", "4") as server: …`."""

    def start(*options: str) -> AbstractContextManager[RunningServer]:
        return serving(tiny_model, *SMALL, "--served-model-name", "tiny", *options)

    return start
