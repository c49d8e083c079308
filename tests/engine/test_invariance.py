"""Text is the same alone, in a crowd, for every chunk size, and through forced preemption: natively and by the reference."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda import LLM, SamplingParams

RANDOM = np.random.default_rng(20261130)
PROMPTS = [RANDOM.integers(0, 256, size=length).tolist() for length in (1, 3, 17, 33, 64, 100, 5, 48, 31, 80)]
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
SEEDED = SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=40, ignore_eos=True, frequency_penalty=0.5)


def generated(llm: LLM, sampling: SamplingParams, one_by_one: bool = False) -> list[list[int]]:
    batches = [[prompt] for prompt in PROMPTS] if one_by_one else [PROMPTS]
    return [output.outputs[0].token_ids for batch in batches for output in llm.generate(batch, sampling)]


@pytest.fixture(scope="module", params=["cpu", "reference"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def alone(tiny_model: str, device: str) -> dict[str, list[list[int]]]:
    with LLM(tiny_model, device=device, threads=1, num_kv_blocks=128) as llm:
        return {
            name: generated(llm, params, one_by_one=True) for name, params in (("greedy", GREEDY), ("seeded", SEEDED))
        }


@pytest.mark.parametrize("chunk", [1, 7, 16, 32, 512])
def test_in_a_crowd_with_every_chunk_size(
    tiny_model: str, device: str, alone: dict[str, list[list[int]]], chunk: int
) -> None:
    limits = {"max_batched_tokens": max(chunk, len(PROMPTS)), "max_prefill_chunk": chunk}
    with LLM(tiny_model, device=device, threads=1, num_kv_blocks=128, **limits) as llm:
        assert generated(llm, GREEDY) == alone["greedy"]
        assert generated(llm, SEEDED) == alone["seeded"]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_through_preemption(tiny_model: str, device: str, alone: dict[str, list[list[int]]], policy: str) -> None:
    # The longest request alone takes 9 of these blocks, and all of them together would take 53.
    limits = {"num_kv_blocks": 16, "max_model_len": 144, "max_batched_tokens": 32}
    with LLM(tiny_model, device=device, threads=1, policy=policy, **limits) as llm:
        # After so many answers that ended at once, long ones come as a surprise.
        (first, *_) = alone["greedy"][0]
        llm.generate([PROMPTS[0]] * 64, SamplingParams(temperature=0, max_tokens=40, stop_token_ids=(first,)))
        assert generated(llm, GREEDY) == alone["greedy"]
        assert generated(llm, SEEDED) == alone["seeded"]
        assert llm.step_log.totals.preemptions > 0


def test_for_other_block_sizes(tiny_model: str, device: str, alone: dict[str, list[list[int]]]) -> None:
    for block_size in {"cpu": (32, 64, 128), "reference": (1, 8, 64)}[device]:
        limits = {"num_kv_blocks": 4096 // block_size, "block_size": block_size, "max_batched_tokens": 50}
        with LLM(tiny_model, device=device, threads=1, **limits) as llm:
            assert generated(llm, GREEDY) == alone["greedy"], block_size


def test_an_unset_seed_is_drawn_anew_for_each_request(tiny_model: str) -> None:
    sampling = SamplingParams(temperature=1.0, max_tokens=16, ignore_eos=True)
    with LLM(tiny_model, threads=1, num_kv_blocks=128) as llm:
        texts = {tuple(output.outputs[0].token_ids) for output in llm.generate([PROMPTS[2]] * 8, sampling)}
    assert len(texts) == 8
