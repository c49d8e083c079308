"""What the prefix cache saves, and what it costs.

    python benchmarks/prefix_cache.py [MODEL] [--json] [--users N] [--shared TOKENS]

Three parts, each with loads of its own: the time to the first token of many users at once whose prompts begin with the same
text, without the cache, with it when nobody has asked before, and with it when somebody has; the tokens that the second turn
of a chat computes; and the time that KV blocks and their hashes take of a step in which 32 sequences run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from pagoda import LLM, SamplingParams
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.engine.handle import RequestHandle

OWN_TOKENS = 32
BATCH, PROMPT_TOKENS, OUTPUT_TOKENS = 32, 128, 128
BOOKKEEPING = ("find_prefix", "can_admit", "admit", "allocate", "commit", "free", "block_table")
MESSAGES = [
    {"role": "system", "content": "You are a patient teacher of geography. " * 20},
    {"role": "user", "content": "Which river runs through the most countries? Answer in two sentences."},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--shared", type=int, default=1000)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with LLM(arguments.model, prefix_cache=False, progress=False) as llm:
        results["without"] = first_tokens(llm, arguments.users, arguments.shared, seed=0)
    with LLM(arguments.model, progress=False) as llm:
        results["new text"] = first_tokens(llm, arguments.users, arguments.shared, seed=0)
        results["seen before"] = first_tokens(llm, arguments.users, arguments.shared, seed=0)
        results["turns"] = turns(llm)
        results["bookkeeping"] = bookkeeping(llm)
    print(json.dumps(results) if arguments.json else told(results))


def first_tokens(llm: LLM, num_users: int, shared: int, seed: int) -> dict[str, float]:
    """Seconds to the first token: the median of the users, and the last of them. seed: of what they share; the rest is new."""
    rng = random.Random(seed)
    common = [rng.randrange(1000, 20_000) for _ in range(shared)]
    prompts = [[*common, *(random.randrange(1000, 20_000) for _ in range(OWN_TOKENS))] for _ in range(num_users)]
    before = llm.step_log.totals.prefill_tokens
    sampling, started = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), time.perf_counter()
    handles = [llm.submit(prompt, sampling) for prompt in prompts]
    seconds: list[float] = []

    def wait(handle: RequestHandle) -> None:
        for number, _ in enumerate(handle):
            if number == 0:
                seconds.append(time.perf_counter() - started)

    threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "median": statistics.median(seconds),
        "last": max(seconds),
        "prompt_tokens": sum(map(len, prompts)),
        "prefill_tokens": llm.step_log.totals.prefill_tokens - before,
    }


def turns(llm: LLM) -> list[dict[str, int]]:
    """Tokens of two turns of a chat: of the prompt, found in the cache, and computed before the first new token."""
    messages, told = list(MESSAGES), []
    for question in ("And which one is the longest?", None):
        (output,) = llm.chat(messages, SamplingParams(temperature=0, max_tokens=60))
        usage = output.usage
        told.append(
            {
                "prompt": usage.prompt_tokens,
                "cached": usage.cached_tokens,
                "computed": usage.prompt_tokens - usage.cached_tokens,
                "generated": usage.completion_tokens,
            }
        )
        messages += [{"role": "assistant", "content": output.outputs[0].text}, {"role": "user", "content": question}]
    return told


def bookkeeping(llm: LLM) -> dict[str, float]:
    """The share of all steps' time that is spent in the KV cache manager, timing it included."""
    scheduler = llm._engine.client._engine._core.scheduler
    kv = scheduler.kv
    assert isinstance(kv, KVCacheManager)
    timed = Timed(kv)
    rng = random.Random(1)
    prompts = [[rng.randrange(1000, 20_000) for _ in range(PROMPT_TOKENS)] for _ in range(BATCH)]
    before = llm.step_log.totals
    llm.generate(prompts, SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True))
    after = llm.step_log.totals
    seconds, steps = after.seconds - before.seconds, after.steps - before.steps
    return {"step_ms": 1e3 * seconds / steps, "kv_ms": 1e3 * timed.seconds / steps, "share": timed.seconds / seconds}


class Timed:
    """Puts a clock around the methods that the scheduler calls."""

    def __init__(self, kv: KVCacheManager) -> None:
        self.seconds = 0.0
        for name in BOOKKEEPING:
            setattr(kv, name, self._around(getattr(kv, name)))

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - started

        return call


def told(results: dict[str, Any]) -> str:
    lines = []
    for name in ("without", "new text", "seen before"):
        part, base = results[name], results["without"]
        lines.append(
            f"{name:12} first token: median {part['median']:.2f} s ({base['median'] / part['median']:.1f} x), last"
            f" {part['last']:.2f} s ({base['last'] / part['last']:.1f} x); {part['prefill_tokens']:,} of"
            f" {part['prompt_tokens']:,} prompt tokens computed"
        )
    for number, turn in enumerate(results["turns"], 1):
        lines.append(
            f"turn {number}: {turn['prompt']} prompt tokens, {turn['cached']} cached, {turn['computed']} computed;"
            f" {turn['generated']} generated"
        )
    cost = results["bookkeeping"]
    lines.append(
        f"KV blocks and hashes: {cost['kv_ms']:.3f} ms of a step of {cost['step_ms']:.2f} ms ({100 * cost['share']:.2f}%)"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
