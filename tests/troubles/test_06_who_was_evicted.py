"""Trouble 6: throughput collapses when the KV cache runs out, and nobody says who was evicted.

Right: admission leaves room for those who run to grow; who gives way, with how many tokens, is reported; all finish.
"""

from __future__ import annotations

import logging

import pytest

from pagoda import LLM, SamplingParams

SAMPLING = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
PROMPTS = [f"{letter} and nothing else" for letter in "abcdefgh"]


def test_the_victim_its_tokens_and_who_needed_them_are_told(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pagoda.engine.core")
    with LLM(tiny_model, threads=1, num_kv_blocks=128) as roomy:
        expected = [output.outputs[0].token_ids for output in roomy.generate(PROMPTS, SAMPLING)]
    with LLM(tiny_model, threads=1, num_kv_blocks=16, max_model_len=128) as llm:
        outputs = llm.generate(PROMPTS, SAMPLING)
        preemptions = [entry for record in llm.step_log.records for entry in record.preemptions]
        totals, stats = llm.step_log.totals, llm.stats
    assert [output.outputs[0].token_ids for output in outputs] == expected
    assert 0 < len(preemptions) == totals.preemptions == stats.num_preemptions
    assert totals.lost_tokens == sum(preemption.lost_tokens for preemption in preemptions) > 0
    names = {output.request_id for output in outputs}
    for preemption, logged in zip(preemptions, caplog.messages, strict=True):
        assert {preemption.victim.request_id, preemption.on_behalf_of.request_id} <= names
        assert preemption.victim.request_id != outputs[0].request_id  # the first to arrive never gives way
        assert f"lost {preemption.lost_tokens} computed tokens" in logged
        assert preemption.victim.request_id in logged


def test_a_request_that_can_never_fit_is_refused_and_not_tried(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=8) as llm:
        (refused,) = llm.generate("x" * 100, SamplingParams(max_tokens=100), errors="return")
        assert "max_tokens: got 100, must be at most 28 (max_model_len 128 less 100 prompt tokens)" in str(
            refused.error
        )
        assert llm.stats.num_preemptions == 0
