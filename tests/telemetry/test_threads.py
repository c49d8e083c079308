from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from pagoda import LLM
from pagoda.telemetry.threads import name_in_system

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")


def names() -> list[str]:
    return [path.read_text(encoding="utf-8").strip() for path in Path("/proc/self/task").glob("*/comm")]


def test_a_long_name_is_cut() -> None:
    found: list[str] = []

    def run() -> None:
        name_in_system()
        found.extend(names())

    thread = threading.Thread(target=run, name="pagoda-thread-with-a-name")
    thread.start()
    thread.join()
    assert "pagoda-thread-w" in found


def test_the_engine_s_threads_are_named(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        llm.generate("Hello")
        assert {"pagoda-engine", "pagoda-output"} <= set(names())
