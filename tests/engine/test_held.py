"""What was planned before loading against what is held afterwards: the KV cache to the byte, weights within 2%."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from pagoda import LLM
from pagoda.cli.inspect import inspect
from pagoda.planning.costs import CostModel
from pagoda.planning.ledger import HeldBytes, format_held

SMALL = {"threads": 1, "num_kv_blocks": 20, "max_num_seqs": 4}


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_the_native_path_holds_what_was_planned(tiny_model: str, quantization: str) -> None:
    with LLM(tiny_model, device="cpu", quantization=quantization, **SMALL) as llm:
        assert llm.held.kv_bytes == llm.plan.kv_bytes > 0
        assert llm.held.weight_bytes == pytest.approx(llm.plan.weight_bytes, rel=0.02)


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "int8"])
def test_the_cache_is_planned_and_counted_in_its_own_format(
    tiny_model: str, kv_dtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with LLM(tiny_model, device="cpu", kv_cache_dtype=kv_dtype, **SMALL) as llm:
        heads = [layer.attention for layer in llm.spec.layers]
        rows = [2 * head.head_dim if kv_dtype == "bfloat16" else head.head_dim + 2 for head in heads]
        token = sum(2 * head.num_kv_heads * row for head, row in zip(heads, rows, strict=True))
        assert llm.held.kv_bytes == llm.plan.kv_bytes == 20 * 16 * token
        costs = CostModel(llm.spec, llm.holding.format_of, llm.holding.kv_held)
        assert costs.kv_bytes_per_token == token
        inspect(tiny_model, kv_cache_dtype=kv_dtype, json=True)
        assert json.loads(capsys.readouterr().out)["memory"]["kv_bytes_per_token"] == token


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
