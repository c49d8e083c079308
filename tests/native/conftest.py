"""Pools of threads that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagoda import _native


@pytest.fixture(params=_native.instruction_sets(), scope="module")
def threads(request: pytest.FixtureRequest) -> Iterator[_native.Threads]:
    """Two workers, once for each instruction set of this machine."""
    pool = _native.Threads(2, request.param)
    yield pool
    pool.close()
