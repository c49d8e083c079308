"""The KV cache in bfloat16 and in int8: what fits, and how long a decode step takes over long contexts.

    python benchmarks/kv_format.py smollm2 --context 4096 --batch 8

Both engines are loaded side by side, and each computes the same prompts of random tokens once. Then they decode in turn, the
prompts coming from their prefix caches, and the medians of steps that do nothing but decode are compared round by round.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import replace

from pagoda import LLM, EngineConfig, SamplingParams
from pagoda.planning.holding import Holding
from pagoda.planning.memory import plan_memory

FORMATS = ("bfloat16", "int8")
CAPACITY_BYTES = 2 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description="The KV cache in two formats, in turn.")
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=4096, help="tokens of each prompt")
    parser.add_argument("--batch", type=int, default=8, help="sequences at once")
    parser.add_argument("--steps", type=int, default=24, help="decode steps of a round")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    numbers = random.Random(0)
    engines = {name: start(arguments, name) for name in FORMATS}
    most = engines["int8"].tokenizer.vocab_size
    prompts = [[numbers.randrange(most) for _ in range(arguments.context)] for _ in range(arguments.batch)]
    for llm in engines.values():
        generate(llm, prompts, 1)
    ratios, seconds = [], {name: [] for name in FORMATS}
    for number in range(arguments.rounds):
        found = {}
        for name in FORMATS if number % 2 else reversed(FORMATS):
            found[name] = decode(engines[name], prompts, arguments.steps)
            seconds[name].append(found[name])
        ratios.append(found["bfloat16"] / found["int8"])
    for name, llm in engines.items():
        blocks = capacity(llm.holding)
        print(
            f"{name:<9} {1e3 * statistics.median(seconds[name]):7.2f} ms a step, "
            f"{llm.plan.kv_bytes // llm.plan.num_blocks:,} B a block, {blocks:,} blocks in {CAPACITY_BYTES >> 30} GiB"
        )
        llm.close()
    print(f"int8 is {statistics.median(ratios):.2f} × as fast ({min(ratios):.2f}–{max(ratios):.2f})")


def start(arguments: argparse.Namespace, kv_cache_dtype: str) -> LLM:
    blocks = arguments.batch * (-(-(arguments.context + arguments.steps + 1) // 16) + 1)
    return LLM(
        arguments.model,
        device="cpu",
        kv_cache_dtype=kv_cache_dtype,
        num_kv_blocks=blocks,
        max_num_seqs=arguments.batch,
    )


def decode(llm: LLM, prompts: list[list[int]], steps: int) -> float:
    """Median seconds of the steps in which all sequences decode."""
    before = len(llm.step_log.records)
    generate(llm, prompts, steps + 1)
    new = llm.step_log.records[before:]
    return statistics.median(step.seconds for step in new if step.decode_tokens == step.num_tokens == len(prompts))


def generate(llm: LLM, prompts: list[list[int]], num_tokens: int) -> None:
    llm.generate(prompts, SamplingParams(max_tokens=num_tokens, ignore_eos=True, temperature=0.0), progress=False)


def capacity(holding: Holding) -> int:
    """Blocks that fit beside the weights and a small workspace."""
    limits = EngineConfig(memory_fraction=1.0, max_num_seqs=4096, max_batched_tokens=64)
    spec = replace(holding.spec, context_length=1 << 20)
    return plan_memory(replace(holding, spec=spec), limits, usable_bytes=CAPACITY_BYTES).num_blocks


if __name__ == "__main__":
    main()
