"""--kv-allocation: the same kernels and the same text, whichever way the blocks are given out."""

from __future__ import annotations

import dataclasses

import pytest

from pagoda import LLM, EngineConfig, SamplingParams, _native
from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.request import Request
from pagoda.errors import InvalidValueError
from tests.engine.exact import LLAMA, Circumstances, MemoryCheckpoint, request, run


def test_fragments_make_a_contiguous_request_wait_and_a_paged_one_run_with_the_same_text() -> None:
    """Four requests of 2, 3, 2 and 3 blocks fill 10 blocks. When the short ones have ended, 4 blocks are free, but never 3 in
    a row before a long one ends."""
    lengths = [(20, 6), (20, 28), (20, 6), (20, 28)]

    def requests() -> list[Request]:
        own = [request(number, prompt, max_tokens=output) for number, (prompt, output) in enumerate(lengths)]
        return [*own, request(4, 40, max_tokens=8)]

    paged = Circumstances(num_blocks=10)
    contiguous = dataclasses.replace(paged, manager=ContiguousKVCacheManager)
    checkpoint, arrivals = MemoryCheckpoint(LLAMA, ("BF16",)), [0, 0, 0, 0, 10]
    one, other = (
        run(checkpoint, _native.instruction_sets()[0], circumstances, requests(), arrivals)
        for circumstances in (paged, contiguous)
    )
    assert one.told == other.told
    assert one.entered[4] == 11  # at once
    assert other.entered[4] > 28  # only when a long one had ended
    assert one.num_preemptions == other.num_preemptions == 0


def test_the_engine_runs_with_contiguous_allocation(tiny_model: str) -> None:
    prompts, sampling = ["one", "and another one", "x"], SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    texts = []
    for allocation in ("paged", "contiguous"):
        with LLM(tiny_model, device="cpu", threads=1, num_kv_blocks=16, kv_allocation=allocation) as llm:
            texts.append([output.outputs[0].token_ids for output in llm.generate(prompts, sampling)])
            # Blocks for the whole of each are taken at once, or as they are needed.
            free = llm.step_log.records[0].num_free_blocks
            assert free == (16 - 3 - 4 - 3 if allocation == "contiguous" else 13)
    assert texts[0] == texts[1]


def test_a_prefix_cache_is_on_unless_allocation_is_contiguous_and_both_cannot_be_asked_for() -> None:
    assert EngineConfig().has_prefix_cache
    assert not EngineConfig(prefix_cache=False).has_prefix_cache
    assert not EngineConfig(kv_allocation="contiguous").has_prefix_cache
    assert not EngineConfig(kv_allocation="contiguous", prefix_cache=False).has_prefix_cache
    with pytest.raises(InvalidValueError, match="prefix_cache: got True, must be off or left out with kv_allocation"):
        EngineConfig(kv_allocation="contiguous", prefix_cache=True)
    with pytest.raises(InvalidValueError, match="kv_allocation"):
        EngineConfig(kv_allocation="elsewhere")
