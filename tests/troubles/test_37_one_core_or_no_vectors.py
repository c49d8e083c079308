"""Trouble 37: one core is used, or kernels for an older machine, and nobody notices. Right: it is found out and said."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from pagoda import LLM, _native
from pagoda.errors import InvalidValueError
from pagoda.runner.host_cores import usable_cores
from pagoda.runner.native_device import FORCED_ISA
from tests.server.process import PAGODA, serving

SETS = _native.instruction_sets()


def test_by_default_all_cores_and_the_best_kernels_are_used(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORCED_ISA, raising=False)
    with LLM(tiny_model, device="cpu", num_kv_blocks=8) as llm:
        assert (llm.device.threads, llm.device.instruction_set) == (usable_cores(), SETS[0])


@pytest.mark.parametrize("name", SETS)
def test_every_instruction_set_of_the_machine_can_be_forced_and_is_told(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(FORCED_ISA, name)
    with LLM(tiny_model, device="cpu", num_kv_blocks=8, threads=3) as llm:
        assert str(llm.device) == f"cpu ({name}, 3 threads)"


def test_one_that_is_not_there_is_refused(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCED_ISA, "avx1024")
    with pytest.raises(InvalidValueError, match=rf"{FORCED_ISA}: got 'avx1024', .*: {', '.join(SETS)}"):
        LLM(tiny_model, device="cpu", num_kv_blocks=8)


def test_the_benchmark_tells_both(tiny_model: str) -> None:
    command = [*PAGODA, "bench", "offline", tiny_model, "--json", "--device", "cpu"]
    command += ["--prompt-tokens", "4", "--output-tokens", "2", "--repeat", "1", "--threads", "1"]
    environment = {**os.environ, FORCED_ISA: SETS[-1]}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=120)
    report = json.loads(ended.stdout)
    assert (report["threads"], report["instruction_set"]) == (1, SETS[-1])


def test_the_server_tells_both_when_it_starts(tiny_model: str) -> None:
    with serving(tiny_model, "--device", "cpu", "--num-kv-blocks", "8", "--threads", "1") as server:
        assert f"on cpu ({os.environ.get(FORCED_ISA) or SETS[0]}, 1 thread)" in server.stderr()
