"""A plugin of pytest: only some tests of a file, evenly spread, where each takes long."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--some-tests", type=int, default=1, help="how many tests run at most")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = items[:: -(-len(items) // config.getoption("--some-tests")) or 1]
