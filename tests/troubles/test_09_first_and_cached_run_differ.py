"""Trouble 9: the first run and the cached run of one prompt differ.

Right: K and V that are found are those that would be computed, and kernels do not mind where a chunk begins: equal tokens
and equal log-probabilities, to the last bit.
"""

from __future__ import annotations

from pagoda import LLM, SamplingParams

TEXT = "The quick brown fox jumps over the lazy dog, and the dog looks up, and sleeps on. "


def test_the_second_run_says_what_the_first_said(tiny_model: str) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=30, logprobs=2, ignore_eos=True)
    drawn = SamplingParams(temperature=1.0, seed=5, max_tokens=30, logprobs=2, ignore_eos=True)
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        for sampling in (greedy, drawn):
            for prompt in (TEXT, TEXT[:64], TEXT[:65]):
                first, *others = [llm.generate(prompt, sampling, cache_salt=repr(sampling.seed))[0] for _ in range(3)]
                for other in others:
                    assert other.usage.cached_tokens == (len(prompt) - 1) // 16 * 16
                    assert other.outputs[0].token_ids == first.outputs[0].token_ids
                    assert other.outputs[0].logprobs == first.outputs[0].logprobs
