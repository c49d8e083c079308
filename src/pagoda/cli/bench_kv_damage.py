"""What one lost block does: K and V of some positions are overwritten while a request runs, and its text goes astray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagoda.cli.bench_kv_generation import TokenIds, generate
from pagoda.core.step import RequestKey
from pagoda.engine.build import Engine
from pagoda.engine.core import EngineCore

MOST_TOKENS = 128  # of the sequence
# Soon: a text that has begun to repeat itself can go on without its beginning.
BEFORE_IT = 16
KEY = RequestKey("alone", 0)


def damage(engine: Engine, prompt: TokenIds, num_tokens: int) -> dict[str, Any]:
    """The text undisturbed, and the same with its first block overwritten when it has a few tokens.

    Tokens are numbered as in the sequence, the prompt's first being 1. Under the names that `docs/cli.md` explains.
    """
    count = min(num_tokens, MOST_TOKENS) - len(prompt)
    after = min(BEFORE_IT, count - 1)

    def overwrite(num_generated: int, core: EngineCore) -> None:
        if num_generated == after:
            engine.runner.lose_block(core.scheduler.kv.block_table(KEY)[0])

    whole = generate(engine, prompt, count)
    damaged = generate(engine, prompt, count, overwrite)
    changed = _first_difference(whole.token_ids, damaged.token_ids)
    numbers = _first_difference(whole.logprobs, damaged.logprobs)
    before = len(prompt) + 1
    return {
        "tokens": len(prompt) + count,
        "overwritten_positions": [0, min(engine.plan.block_size, len(prompt) + after) - 1],
        "overwritten_after_token": len(prompt) + after,
        "first_changed_logprob": None if numbers is None else before + numbers,
        "first_changed_token": None if changed is None else before + changed,
        "equal_text": engine.tokenizer.decode(whole.token_ids[:changed]),
        "text": engine.tokenizer.decode(whole.token_ids[changed:] if changed is not None else []),
        "damaged_text": engine.tokenizer.decode(damaged.token_ids[changed:] if changed is not None else []),
    }


def _first_difference(one: Sequence[float], other: Sequence[float]) -> int | None:
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
