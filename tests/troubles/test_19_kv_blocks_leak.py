"""Trouble 19: KV blocks leak, until nothing can be admitted any more.

Right: when nobody runs all blocks are free, and that is looked at every time, in production too. Should it ever not be so, it
is counted, logged with the state, and mended. tests/engine/test_kv_soak.py looks for leaks among thousands of requests.
"""

from __future__ import annotations

import logging

import pytest

from pagoda import LLM, SamplingParams

SAMPLING = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, n=2)


def test_all_blocks_are_free_after_every_kind_of_end(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=24, max_model_len=128) as llm:
        handles = [llm.submit("A text that is shared, then its own: " + letter, SAMPLING) for letter in "abcdefgh"]
        for handle in handles[::3]:
            handle.cancel()
        for handle in handles:
            handle.result(60)
        llm.generate("Stopped", SamplingParams(temperature=0, stop=list("etaoin"), max_tokens=60))
        llm.generate("Scored", SamplingParams(max_tokens=0, prompt_logprobs=0))
        llm.generate("x" * 200, SAMPLING, errors="return")
        stats = llm.stats
        assert (stats.num_free_blocks, stats.violations) == (stats.num_blocks, 0)


def test_a_leak_is_loud_and_the_engine_goes_on(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=24) as llm:
        expected = llm.generate("Hello", SAMPLING)[0].outputs
        llm._engine.client._engine._core.scheduler.kv.pool.allocate(23)
        # With one block left, only the leak's end lets this one in.
        assert llm.generate("A prompt of more than one block", SAMPLING)[0].error is None
        assert llm.generate("Hello", SAMPLING)[0].outputs == expected
        assert (llm.stats.violations, llm.stats.num_free_blocks) == (1, 24)
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "nobody runs, but not all blocks are free" in record.message
    assert "waiting (2), the first 20:" in record.message
