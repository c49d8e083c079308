"""Trouble 25: "maximum context length is 3 tokens". Right: exact figures of what was asked, what is allowed, and why."""

from __future__ import annotations

import pytest

from pagoda import LLM, SamplingParams
from pagoda.errors import InvalidValueError


def test_the_refusal_has_the_prompt_s_length_and_the_limit(tiny_model: str) -> None:
    with LLM(tiny_model, max_model_len=64, num_kv_blocks=16, threads=1) as llm:
        with pytest.raises(InvalidValueError) as too_long:
            llm.generate([1] * 64)
        assert "at most 63 tokens long (max_model_len is 64); it has 64" in str(too_long.value)
        with pytest.raises(InvalidValueError) as too_many:
            llm.generate([1] * 60, SamplingParams(max_tokens=5))
        assert str(too_many.value) == "max_tokens: got 5, must be at most 4 (max_model_len 64 less 60 prompt tokens)"
        # And what is allowed by these figures works, to the last token.
        output = llm.generate([1] * 60, SamplingParams(max_tokens=4, ignore_eos=True))[0]
        assert len(output.outputs[0].token_ids) == 4
        assert len(llm.generate([1] * 63, SamplingParams(ignore_eos=True))[0].outputs[0].token_ids) == 1
        assert len(llm.score([[1] * 64])[0].prompt_logprobs or []) == 64
