"""The same greedy tokens twice: with the KV cache, and by computing the whole sequence anew for each of them.

Token n of a sequence follows n - 1 tokens. With the cache its step computes the last of these, and reads K and V of the
others; without, the step computes all n - 1. FLOPs and bytes are the cost model's, for every token; milliseconds are
measured, and without the cache only at some positions, since to generate n tokens in this way takes n² / 2 positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.cli.bench_kv_generation import Generated, TokenIds, generate
from pagoda.engine.build import Engine
from pagoda.planning.costs import CostModel
from pagoda.progress import Progress

# What a token takes at a length is the median of so many, up to it with the cache, and of repetitions without.
CACHED_TOKENS, REPETITIONS = 16, 3
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of tokens first … last of one sequence, the prompt being what comes before; arrays have an entry for each.

    measured: the tokens computed without the cache as well, and what each took: {token: seconds}. unequal: those of them
    whose id differed. unequal_logprobs: those whose log-probability differed, in any bit.
    cached_costs, recomputed_costs [N, 2]: FLOPs and bytes.
    """

    first: int
    last: int
    token_ids: list[int]
    cached_seconds: Floats
    measured: dict[int, float]
    unequal: list[int]
    unequal_logprobs: list[int]
    cached_costs: Floats
    recomputed_costs: Floats

    def recomputed_seconds(self) -> Floats:
        """Of each token: as measured, and between two that were measured on the straight line from one to the other."""
        return np.interp(np.arange(self.first, self.last + 1), list(self.measured), list(self.measured.values()))


def compare(engine: Engine, prompt: TokenIds, lengths: Sequence[int], samples: int, bars: Progress) -> Comparison:
    """lengths: of the whole sequence, ascending. samples: tokens up to each length that are computed without the cache."""
    first, last = len(prompt) + 1, lengths[-1]
    total = last - len(prompt)
    generate(engine, prompt, min(total, CACHED_TOKENS))  # warms up
    generated = generate(engine, prompt, total, lambda count, _: bars("With the cache", count, total))
    whole = [*prompt, *generated.token_ids]
    repeated = _measure(engine, whole, _positions(first, lengths, samples), generated, bars)
    steps = [_chunks(len(prompt), engine.plan.max_batched_tokens), *([(n - 2, 1)] for n in range(first + 1, last + 1))]
    anew = [_chunks(n - 1, engine.plan.max_batched_tokens) for n in range(first, last + 1)]
    return Comparison(
        first=first,
        last=last,
        token_ids=generated.token_ids,
        cached_seconds=np.array(generated.seconds),
        measured=repeated.seconds,
        unequal=repeated.unequal,
        unequal_logprobs=repeated.unequal_logprobs,
        cached_costs=_costs(engine.costs, steps),
        recomputed_costs=_costs(engine.costs, anew),
    )


@dataclass(frozen=True, slots=True)
class _Repeated:
    seconds: dict[int, float]
    unequal: list[int]
    unequal_logprobs: list[int]


def _measure(
    engine: Engine, whole: TokenIds, repetitions: dict[int, int], known: Generated, bars: Progress
) -> _Repeated:
    """Each of these tokens as the only one after a prompt of all before it, as often as it says."""
    total, done = sum((token - 1) * count for token, count in repetitions.items()), 0
    result, num_prompt = _Repeated({}, [], []), len(whole) - len(known.token_ids)
    for token, count in repetitions.items():
        seconds = []
        for _ in range(count):
            bars("Recomputing", done, total)
            anew = generate(engine, whole[: token - 1], 1)
            seconds.append(anew.seconds[0])
            done += token - 1
        result.seconds[token] = median(seconds)
        if anew.token_ids[0] != known.token_ids[token - 1 - num_prompt]:
            result.unequal.append(token)
        if anew.logprobs[0] != known.logprobs[token - 1 - num_prompt]:
            result.unequal_logprobs.append(token)
    return result


def _positions(first: int, lengths: Sequence[int], samples: int) -> dict[int, int]:
    """{token: how often}, ascending: evenly spaced up to each length, and the lengths themselves."""
    spaced = {round(token) for length in lengths for token in np.linspace(first, length, samples)}
    return {token: REPETITIONS if token in lengths else 1 for token in sorted({*spaced, *lengths})}


def _chunks(num_tokens: int, most: int) -> list[tuple[int, int]]:
    """A prompt as steps compute it: (start, tokens) of each."""
    return [(start, min(most, num_tokens - start)) for start in range(0, num_tokens, most)]


def _costs(costs: CostModel, tokens: Sequence[Sequence[tuple[int, int]]]) -> Floats:
    """[tokens, 2]: FLOPs and bytes of the steps of each. Only the last of them has logits."""
    rows = []
    for steps in tokens:
        each = [costs.step_cost([step], int(step is steps[-1])) for step in steps]
        rows.append((sum(cost.flops for cost in each), sum(cost.num_bytes for cost in each)))
    return np.array(rows, np.float64)


def report_of(comparison: Comparison, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """For each length, under the names that `docs/cli.md` explains."""
    return [_at_length(comparison, length) for length in lengths]


def _at_length(comparison: Comparison, length: int) -> dict[str, Any]:
    count, first = length - comparison.first + 1, comparison.first
    cached = comparison.cached_seconds[:count]
    recomputed = comparison.recomputed_seconds()[:count]
    tokens = [token for token in comparison.measured if token <= length]

    def equal(unequal: Sequence[int]) -> bool:
        return not any(token <= length for token in unequal)

    def costs(of: Floats) -> dict[str, float]:
        flops, moved = of[:count].sum(axis=0)
        return {
            "flops_per_token": int(of[count - 1, 0]),
            "bytes_per_token": int(of[count - 1, 1]),
            "flops": int(flops),
            "bytes": int(moved),
        }

    return {
        "tokens": length,
        "prompt_tokens": first - 1,
        "compared_tokens": len(tokens),
        "compared": tokens,
        "equal_ids": equal(comparison.unequal),
        "equal_logprobs": equal(comparison.unequal_logprobs),
        "cached": {
            "ms_per_token": 1e3 * float(np.median(cached[-CACHED_TOKENS:])),
            "ms": 1e3 * float(cached.sum()),
            **costs(comparison.cached_costs),
        },
        "recomputed": {
            "ms_per_token": 1e3 * float(recomputed[-1]),
            "ms": 1e3 * float(recomputed.sum()),
            "ms_is_interpolated": len(tokens) < count,
            **costs(comparison.recomputed_costs),
        },
    }
