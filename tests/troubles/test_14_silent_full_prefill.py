"""Trouble 14: a prompt that should be cached is silently computed again, all of it.

Right: each answer says how many tokens were cached, and the metrics say for what is missed, why.
"""

from __future__ import annotations

from pagoda import LLM, SamplingParams
from pagoda.core.prefix_cache import Miss

ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1)
TEXT = "A system prompt that everybody sends before their own question, word for word. "  # 79 tokens, one a character


def test_each_miss_has_its_reason(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=16) as llm:

        def ask(prompt: str, salt: str | None = None) -> tuple[int, Miss | None]:
            before = llm.stats.prefix.misses
            (output,) = llm.generate(prompt, ONE_TOKEN, cache_salt=salt)
            reasons = [reason for reason in Miss if llm.stats.prefix.misses[reason] > before[reason]]
            assert len(reasons) <= 1
            return output.usage.cached_tokens, reasons[0] if reasons else None

        assert ask("Hi") == (0, Miss.TOO_SHORT)
        assert ask(TEXT) == (0, Miss.NEW_TEXT)
        assert ask(TEXT) == (64, None)
        assert ask(TEXT[:64] + "Something else altogether.") == (64, Miss.NEW_TEXT)
        assert ask(TEXT, salt="mine") == (0, Miss.OTHER_TENANT)
        ask("x" * 250)  # fills all the cache
        assert ask(TEXT) == (0, Miss.EVICTED)
        stats = llm.stats.prefix
        assert stats.hit_tokens == 64 + 64
        assert stats.queried_tokens == 2 + 4 * len(TEXT) + 64 + 26 + 250


def test_what_is_left_out_of_the_cache_says_so_too(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64, prefix_cache=False) as llm:
        for _ in range(2):
            (output,) = llm.generate(TEXT, ONE_TOKEN)
            assert output.usage.cached_tokens == 0
        assert llm.stats.prefix.queried_tokens == llm.stats.num_cached_blocks == 0
