"""Trouble 11: a collision of hashes serves another prompt's KV.

Right: what a hash finds is compared, token by token, before it is used. Here every hash has 8 bits, so that texts collide
all the time; tests/engine/test_cached_exactness.py does the same to random conversations.
"""

from __future__ import annotations

import random
import string

import pytest

from pagoda import LLM, SamplingParams
from pagoda.core import prefix_cache
from pagoda.core.prefix_cache import PrefixCache


class EightBits(PrefixCache):
    def __init__(self, block_size: int) -> None:
        super().__init__(block_size, lambda before, token_ids: prefix_cache.hash_of_tuple(before, token_ids) & 0xFF)
        self.num_collisions = 0

    def _next(self, after: object, token_ids: tuple[int, ...]) -> object:
        found = super()._next(after, token_ids)  # type: ignore[arg-type]
        self.num_collisions += found is None and self._hash(self._chain_hash(after), token_ids) in self._index  # type: ignore[arg-type]
        return found


def test_texts_that_collide_get_their_own_answers(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    prompts = ["".join(rng.choices(string.ascii_letters, k=rng.randint(60, 150))) for _ in range(60)]
    prompts += [prompt[: rng.randint(20, 60)] + "!" for prompt in prompts]
    sampling = SamplingParams(temperature=0, max_tokens=4, logprobs=1)
    with LLM(tiny_model, threads=1, num_kv_blocks=256, prefix_cache=False) as llm:
        expected = [output.outputs for output in llm.generate(prompts, sampling)]
    monkeypatch.setattr("pagoda.engine.build.PrefixCache", EightBits)
    with LLM(tiny_model, threads=1, num_kv_blocks=256) as llm:
        for _ in range(2):
            assert [output.outputs for output in llm.generate(prompts, sampling)] == expected
        cache = llm._engine.client._engine._core.scheduler.kv.cache
        assert isinstance(cache, EightBits)
        assert cache.num_collisions > 50
        assert llm.stats.prefix.hit_tokens > 0
