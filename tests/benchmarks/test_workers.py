"""Workers: what is asked on stdin, what is answered on stdout, and Pagoda's own worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparing import engines
from comparing.cases import PAGODA, Load
from worker import Load as AskedLoad

from pagoda.loading.default_model import default_model_path

FAKE = """
import sys
sys.path.insert(0, {folder!r})
from worker import Engine, Measured, main

def measure(load):
    print("an engine's own words")
    tokens = load.batch * (load.output_tokens - 1)
    return Measured(1.0, 2.0, tokens, [load.output_tokens] * (load.batch if load.seed else 1))

main(lambda options: Engine(f"fake {{options.threads}}", measure))
"""


def test_a_worker_answers_each_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker_of_tests.py"
    worker.write_text(FAKE.format(folder=str(engines.WORKERS)))
    monkeypatch.setitem(engines.PROGRAMS, PAGODA, str(worker))
    with engines.engine(PAGODA, tmp_path, "model", threads=3, max_batch=4, max_length=40) as fake:
        assert fake.name == "fake 3"
        for batch in (1, 4):
            assert fake.measure(Load("any", batch, 10, 6), seed=1).decode_tokens == 5 * batch
        with pytest.raises(engines.EngineError, match=r"pagoda gave \[6\] tokens"):
            fake.measure(Load("any", 2, 10, 6), seed=0)


def test_prompts_are_new_with_each_seed_and_the_same_with_the_same() -> None:
    prompts = AskedLoad(3, 20, 5, seed=1).prompts()
    assert [len(prompt) for prompt in prompts] == [20] * 3
    assert prompts == AskedLoad(3, 20, 9, seed=1).prompts()
    others = prompts + AskedLoad(3, 20, 5, seed=2).prompts()
    assert len({tuple(prompt) for prompt in others}) == 6


@pytest.mark.smollm2
@pytest.mark.slow
def test_the_worker_of_pagoda(tmp_path: Path) -> None:
    model = str(default_model_path())
    with engines.engine(PAGODA, tmp_path, model, threads=1, max_batch=2, max_length=24) as pagoda:
        decode = pagoda.measure(Load("decode", 2, 8, 6), seed=1)
        prefill = pagoda.measure(Load("prefill", 1, 20, 1), seed=1)
    assert 4 <= decode.decode_tokens <= 10
    assert 0 < decode.more["native_seconds"] < decode.more["watched_seconds"]
    assert decode.more["bytes_read"] > 0
    assert prefill.prefill_seconds > 0
    assert prefill.more["resident_bytes"] > prefill.more["kv_bytes"] > 0
