"""What was planned before loading against what is held afterwards: the KV cache to the byte, weights within 2%."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pagoda import LLM
from pagoda.planning.ledger import HeldBytes, format_held

SMALL = {"threads": 1, "num_kv_blocks": 20, "max_num_seqs": 4}


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_the_native_path_holds_what_was_planned(tiny_model: str, quantization: str) -> None:
    with LLM(tiny_model, device="cpu", quantization=quantization, **SMALL) as llm:
        assert llm.held.kv_bytes == llm.plan.kv_bytes > 0
        assert llm.held.weight_bytes == pytest.approx(llm.plan.weight_bytes, rel=0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_reference_holds_what_was_planned(tiny_model: str, dtype: str) -> None:
    with LLM(tiny_model, device="reference", dtype=dtype, **SMALL) as llm:
        assert llm.held.kv_bytes == llm.plan.kv_bytes > 0
        assert llm.held.weight_bytes == pytest.approx(llm.plan.weight_bytes, rel=0.02)


@pytest.mark.smollm2
def test_a_real_model_is_held_to_the_byte() -> None:
    with LLM("smollm2", device="cpu", threads=1, num_kv_blocks=20, max_num_seqs=4) as llm:
        assert llm.held == HeldBytes(llm.plan.weight_bytes, llm.plan.kv_bytes)


def test_a_difference_is_told_with_both_figures(tiny_model: str) -> None:
    with LLM(tiny_model, device="cpu", **SMALL) as llm:
        plan = replace(llm.plan, weight_bytes=1_030)
    line = format_held(plan, HeldBytes(1_000, plan.kv_bytes))
    assert re.fullmatch(
        rf"weights 1,000 B, predicted 1,030 B \(\+3\.00%\); KV cache {plan.kv_bytes:,} B, as predicted", line
    )
