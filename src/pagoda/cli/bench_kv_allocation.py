"""Paged against contiguous allocation: the same requests, the same memory, the same kernels."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from pagoda.cli.bench_kv_generation import greedy, raise_error
from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.scheduler import Scheduler
from pagoda.engine.build import Engine
from pagoda.engine.messages import Abort, Submit
from pagoda.progress import Progress

SEED = 0
NUM_REQUESTS = 24
# Memory for so many of the longest request that may be asked for.
LONGEST_THAT_FIT = 4
MOST_POSITIONS = 192  # of a request
MANAGERS: dict[str, Callable[[int, int], KVManager]] = {
    "paged": KVCacheManager,
    "contiguous": ContiguousKVCacheManager,
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests that come at once. output_tokens: after so many each ends, as a text does that is at its end; max_tokens is
    what it might have needed as far as anybody knew."""

    submits: Sequence[Submit]
    output_tokens: dict[str, int]
    num_blocks: int


@dataclass(slots=True)
class _Use:
    """What was seen after each step: requests running, bytes of blocks given out, of these without K and V of a token."""

    running: list[int] = field(default_factory=list)
    given_out: list[int] = field(default_factory=list)
    wasted: list[int] = field(default_factory=list)
    blocked_by_gaps: int = 0


def make_trace(engine: Engine) -> Trace:
    """Prompts of random tokens and random lengths. The same for the same model."""
    numbers, plan = random.Random(SEED), engine.plan
    longest = min(MOST_POSITIONS, plan.max_model_len)
    most_prompt, max_tokens = longest // 2, longest - longest // 2
    vocabulary = range(engine.tokenizer.vocab_size)
    submits, lengths = [], {}
    for number in range(NUM_REQUESTS):
        prompt = numbers.choices(vocabulary, k=numbers.randint(max(1, most_prompt // 8), most_prompt))
        submits.append(greedy(engine, f"{number}", prompt, max_tokens))
        lengths[f"{number}"] = numbers.randint(max(1, max_tokens // 8), max_tokens)
    blocks = LONGEST_THAT_FIT * -(-longest // plan.block_size)
    return Trace(submits, lengths, min(blocks, plan.num_blocks))


def compare_allocation(engine: Engine, bars: Progress) -> dict[str, Any]:
    """Both ways, under the names that `docs/cli.md` explains."""
    trace = make_trace(engine)
    texts, reports = [], {}
    for name, manager in MANAGERS.items():
        kv = manager(trace.num_blocks, engine.plan.block_size)
        token_ids, report = _run(engine, kv, trace, partial(_show, bars, name))
        texts.append(token_ids)
        reports[name] = report
    return {
        "requests": NUM_REQUESTS,
        "blocks": trace.num_blocks,
        "block_bytes": engine.plan.block_bytes,
        "max_tokens": trace.submits[0].sampling.max_tokens,
        "equal_outputs": texts[0] == texts[1],
        **reports,
    }


def _show(bars: Progress, name: str, done: int) -> None:
    bars(f"Allocation, {name}", done, NUM_REQUESTS)


def _run(
    engine: Engine, kv: KVManager, trace: Trace, show: Callable[[int], None]
) -> tuple[dict[str, list[int]], dict[str, Any]]:
    core, use = engine.own_loop(kv), _Use()
    token_ids: dict[str, list[int]] = {submit.request_id: [] for submit in trace.submits}
    messages: list[Submit | Abort] = [*trace.submits]
    admitted_at_once, finished = 0, 0
    while messages or core.has_work:
        events, messages = core.turn(messages), []
        admitted_at_once = admitted_at_once or core.scheduler.num_running
        for event in events:
            raise_error(event)
            name = event.key.request_id
            token_ids[name] += event.token_ids
            if event.token_ids and len(token_ids[name]) == trace.output_tokens[name]:
                finished += 1
                if event.finish_reason is None:
                    messages.append(Abort(name))
        _note(use, core.scheduler, engine)
        show(finished)
    texts = {name: ids[: trace.output_tokens[name]] for name, ids in token_ids.items()}
    totals = core.step_log.totals
    given_out = sum(use.given_out)
    return texts, {
        "admitted_at_once": admitted_at_once,
        "mean_running": fmean(use.running),
        "most_running": max(use.running),
        "steps": totals.steps,
        "seconds": totals.seconds,
        "preemptions": totals.preemptions,
        "mean_bytes_given_out": fmean(use.given_out),
        "mean_bytes_wasted": fmean(use.wasted),
        "wasted_share": sum(use.wasted) / given_out if given_out else 0.0,
        "steps_blocked_by_gaps": use.blocked_by_gaps,
    }


def _note(use: _Use, scheduler: Scheduler, engine: Engine) -> None:
    if not scheduler.running:
        return
    kv = scheduler.kv
    given_out = (kv.num_blocks - kv.num_free_blocks) * engine.plan.block_bytes
    held = sum(request.num_computed_tokens for request in scheduler.running) * engine.costs.kv_bytes_per_token
    use.running.append(scheduler.num_running)
    use.given_out.append(given_out)
    use.wasted.append(given_out - held)
    first = scheduler.waiting.peek()
    if first is not None:
        use.blocked_by_gaps += kv.largest_allocation < kv.blocks_for(first.max_num_positions) <= kv.num_free_blocks
