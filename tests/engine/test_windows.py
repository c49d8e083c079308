"""A model with a window in every layer gives up blocks while it runs, and its numbers stay the same to the last bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pagoda import LLM, SamplingParams, _native
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.prefix_cache import PrefixCache
from tests.engine.exact import WINDOWED, Circumstances, MemoryCheckpoint, Told, make_requests, run
from tests.soak import soak_count
from tests.tiny_model import write_tiny_model

SCHEDULES = soak_count(60)


def windowed(num_blocks: int, block_size: int) -> KVManager:
    return KVCacheManager(num_blocks, block_size, PrefixCache(block_size), WINDOWED["sliding_window"])


@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
def test_any_schedule_gives_the_same_numbers(instruction_set: str) -> None:
    model = MemoryCheckpoint(WINDOWED, ("BF16",))
    assert model.spec.widest_window == 40
    for seed in range(SCHEDULES):
        numbers = random.Random(seed)
        alone: dict[int, Told] = {}
        for one in make_requests(seed):
            alone |= run(model, instruction_set, Circumstances(), [one]).told
        circumstances = Circumstances(
            num_blocks=numbers.choice((11, 14, 30)),  # the longest request takes 10
            max_num_seqs=numbers.randint(2, 9),
            max_batched_tokens=(budget := numbers.choice((9, 33, 100))),
            prefill_chunk=numbers.randint(1, budget),
            manager=windowed,
        )
        arrivals = [numbers.randrange(30) for _ in alone]
        crowd = run(model, instruction_set, circumstances, make_requests(seed), arrivals)
        assert crowd.told == alone, circumstances


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as a Mistral with a window of 24 tokens."""
    directory = write_tiny_model(tmp_path_factory.mktemp("mistral"))
    config = json.loads((directory / "config.json").read_text())
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 24}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_long_text_holds_no_more_blocks_than_its_window_touches(mistral: Path, device: str) -> None:
    prompts = [list(range(number, number + 20)) for number in (1, 60)]
    sampling = SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True)
    texts = []
    for allocation in ("paged", "contiguous"):
        with LLM(str(mistral), device=device, threads=1, num_kv_blocks=30, kv_allocation=allocation) as llm:
            texts.append([output.outputs[0].token_ids for output in llm.generate(prompts, sampling)])
            in_use = [30 - record.num_free_blocks for record in llm.step_log.records]
            # Of 16 positions each: 24 in a row lie in at most 3, and the first is given up before the next comes.
            assert max(in_use) == (2 * 3 if allocation == "paged" else 2 * 7)
    assert texts[0] == texts[1]
