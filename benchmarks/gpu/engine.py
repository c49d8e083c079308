"""The engine as its users call it: from the start of a process to the first token, decode by batch, prefill."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gpu import graphs
from gpu.context import Context
from gpu.device import config_of_device
from gpu.report import read_json
from gpu.sizes import Sizes
from pagoda import LLM, SamplingParams
from pagoda.errors import DoesNotFitError
from pagoda.telemetry.steps import StepRecord

BLOCK_SIZE = 16
SEED = 0
LAST_STEPS = 16
PROFILED_TOKENS = 256


def run(
    context: Context,
    *,
    model: str,
    batches: Sequence[int] = (),
    prefills: Sequence[tuple[int, int]] = (),
    profiled: Sequence[int] = (),
    eager: Sequence[int] = (),
    only_starts: bool = False,
    **config: Any,
) -> None:
    """model: the name of its folder. What is measured beyond the start: decode of `batches`, `prefills` as (prompts, tokens of
    each), decode of `profiled` kernel by kernel, and of `eager` without graphs; with only_starts nothing, but the engine is as
    large. config: further settings of the engine."""
    sizes, report = context.sizes, context.report
    read_rate = read_json(context.folder / "ceilings.json").get("read_bytes_per_second")
    decodes = [(batch, sizes.prompt_tokens + sizes.output_tokens) for batch in batches]
    opened, left_out = _largest_that_fits(context, model, [*decodes, *prefills] or [(1, 2 * BLOCK_SIZE)], config)
    batches = [batch for batch, load in zip(batches, decodes, strict=True) if load not in left_out]
    prefills = [load for load in prefills if load not in left_out]
    with opened as llm:
        bench = Bench(llm, read_rate)
        bench.generate(1, BLOCK_SIZE, 1)
        report(
            start_to_first_token_seconds=time.time() - context.started,
            load_seconds=llm.load_seconds,
            device=str(llm.device),
            weight_bytes=llm.held.weight_bytes,
            kv_bytes=llm.held.kv_bytes,
        )
        if only_starts:
            return
        for batch in batches:
            graphs.wait_for(llm, batch, partial(bench.generate, batch, sizes.prompt_tokens, sizes.warm_up_tokens))
        report(graphs=graphs.state(llm))
        before = allocations()
        for batch in batches:
            report(**{f"decode {batch}": bench.decode(batch, sizes.prompt_tokens, sizes.output_tokens)})
        for prompts, tokens in prefills:
            report(**{f"prefill {prompts} x {tokens}": bench.prefill(prompts, tokens, sizes.prefill_repeats)})
        after = allocations()
        report(allocations={name: after[name] - before[name] for name in after})
        for batch in (batch for batch in profiled if batch in batches):
            try:
                report(**{f"profile {batch}": bench.profile(batch, sizes.prompt_tokens)})
            except Exception as error:  # the profiler helps to read the other figures; they do not fail for it
                report(**{f"profile {batch}": {"failed": repr(error)}})
        if eager:
            graphs.switch_off(llm)
        for batch in eager:
            report(**{f"without graphs, decode {batch}": bench.decode(batch, sizes.prompt_tokens, sizes.output_tokens)})


def _largest_that_fits(
    context: Context, model: str, loads: Sequence[tuple[int, int]], config: dict[str, Any]
) -> tuple[LLM, dict[tuple[int, int], str]]:
    """The engine for all of these loads, but those that the GPU is too small for; and why each was left out."""
    left_out: dict[tuple[int, int], str] = {}
    while True:
        fitting = [load for load in loads if load not in left_out]
        try:
            return open_llm(context.folder / model, context.sizes, fitting, **config), left_out
        except DoesNotFitError as error:
            if len(fitting) == 1:
                raise
            largest = max(fitting, key=lambda load: load[0] * load[1])
            left_out[largest] = str(error)
            context.report(left_out=[f"{count} x {tokens}: {why}" for (count, tokens), why in left_out.items()])


def open_llm(model: Path, sizes: Sizes, loads: Sequence[tuple[int, int]], **config: Any) -> LLM:
    """loads: (sequences at once, tokens of each at its end): the cache is as large as the largest needs."""
    max_model_len = max(tokens for _, tokens in loads) + PROFILED_TOKENS
    blocks = [count * (tokens // BLOCK_SIZE + 2) for count, tokens in loads]
    settings: dict[str, Any] = {
        "max_num_seqs": max(count for count, _ in loads),
        "max_batched_tokens": sizes.max_batched_tokens,
        "max_prefill_chunk": sizes.max_batched_tokens,
        "max_model_len": max_model_len,
        "block_size": BLOCK_SIZE,
        "num_kv_blocks": max(*blocks, max_model_len // BLOCK_SIZE + 1),
        "memory_fraction": 0.95,
        "prefix_cache": False,
    }
    return LLM(str(model), progress=False, **{**settings, **config_of_device(), **config})


class Bench:
    """Random prompts, new ones each time; answers are as long as was asked."""

    def __init__(self, llm: LLM, read_rate: float | None) -> None:
        """read_rate: bytes of memory that can be read in a second."""
        self._llm, self._read_rate = llm, read_rate
        self._numbers = random.Random(SEED)
        self._vocabulary = range(llm.tokenizer.vocab_size)

    def generate(self, batch: int, prompt_tokens: int, output_tokens: int) -> tuple[float, list[StepRecord]]:
        """Seconds from the first request to the last result, and the steps that it took."""
        first_step = self._llm.step_log.totals.steps
        prompts = [self._numbers.choices(self._vocabulary, k=prompt_tokens) for _ in range(batch)]
        sampling = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True)
        begun = time.perf_counter()
        outputs = self._llm.generate(prompts, sampling)
        seconds = time.perf_counter() - begun
        for output in outputs:
            if len(output.outputs[0].token_ids) != output_tokens:
                raise ArithmeticError(f"{output_tokens} tokens were asked for, not {output.outputs[0].token_ids}")
        count = self._llm.step_log.totals.steps - first_step
        return seconds, list(self._llm.step_log.records[-count:])

    def decode(self, batch: int, prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
        """Of steps in which all decode: the median time, and what reading the weights and their K and V takes at the measured
        rate. wall_ms: from the first such step's end to the last one's, over their number. forward_ms: of the device alone, of
        the last step's graph; host_ms: what the last steps took beyond it, choosing tokens included."""
        _, steps = self.generate(batch, prompt_tokens, output_tokens)
        full = [step for step in steps if step.decode_tokens == batch and not step.prefill_tokens]
        milliseconds = sorted(1e3 * step.seconds for step in full)
        num_bytes = statistics.median(step.num_bytes for step in full)
        step_ms = statistics.median(milliseconds)
        limit_ms = None if self._read_rate is None else 1e3 * num_bytes / self._read_rate
        return {
            "step_ms": step_ms,
            "step_ms_p10": milliseconds[len(full) // 10],
            "step_ms_p90": milliseconds[len(full) * 9 // 10],
            "wall_ms": 1e3 * (full[-1].ended - full[0].ended) / max(len(full) - 1, 1),
            "limit_ms": limit_ms,
            "fraction_of_limit": None if limit_ms is None else limit_ms / step_ms,
            "tokens_per_second": 1e3 * batch / step_ms,
            "bytes_per_step": num_bytes,
            **self._forward(batch, full),
            "scheduling_ms": 1e3 * statistics.median(step.overhead_seconds for step in full),
            "context": prompt_tokens + output_tokens / 2,
            "steps": len(full),
        }

    def _forward(self, batch: int, steps: Sequence[StepRecord]) -> dict[str, Any]:
        seconds = graphs.replay_seconds(self._llm, batch, repeats=20)
        if seconds is None:
            return {"forward_ms": None, "host_ms": None}
        last = statistics.median(step.seconds for step in steps[-LAST_STEPS:])
        return {"forward_ms": 1e3 * seconds, "host_ms": 1e3 * (last - seconds)}

    def prefill(self, prompts: int, tokens: int, repeats: int) -> dict[str, Any]:
        """Until every prompt has its first token, tokenizing and scheduling included; after one run to warm up."""
        runs = [self.generate(prompts, tokens, 1)[0] for _ in range(repeats + 1)]
        seconds = statistics.median(runs[1:])
        return {"seconds": seconds, "tokens_per_second": prompts * tokens / seconds}

    def profile(self, batch: int, prompt_tokens: int) -> dict[str, Any]:
        """Where the device's time goes in a step of decode, by kernel. The tracing itself slows steps down a little."""
        if not torch.cuda.is_available():
            return {}
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]):
            self.generate(1, BLOCK_SIZE, 2)  # the profiler's own start takes a second
        sampling = SamplingParams(temperature=0.0, max_tokens=PROFILED_TOKENS if batch < 64 else 96, ignore_eos=True)
        prompts = [self._numbers.choices(self._vocabulary, k=prompt_tokens) for _ in range(batch)]
        before = self._llm.step_log.totals.decode_tokens
        handles = [self._llm.submit(prompt, sampling) for prompt in prompts]
        while self._llm.step_log.totals.decode_tokens < before + 16 * batch:
            time.sleep(0.001)
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            first = self._llm.step_log.totals.steps
            while self._llm.step_log.totals.steps < first + 16 and not handles[0].done():
                time.sleep(0.001)
            steps = self._llm.step_log.totals.steps - first
        for handle in handles:
            handle.result()
        if not steps:
            return {}
        kernels = sorted(traced.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
        busy = sum(kernel.self_device_time_total for kernel in kernels)
        return {
            "steps": steps,
            "device_ms_per_step": busy / 1e3 / steps,
            "kernels": [
                {
                    "name": kernel.key[:80],
                    "calls_per_step": kernel.count / steps,
                    "us_per_call": kernel.self_device_time_total / max(kernel.count, 1),
                    "us_per_step": kernel.self_device_time_total / steps,
                }
                for kernel in kernels[:24]
            ],
        }


def allocations() -> dict[str, int]:
    """How often device memory was asked for: of torch's allocator, and of the driver."""
    if not torch.cuda.is_available():
        return {}
    counts = torch.cuda.memory_stats()
    return {"of_torch": counts["allocation.all.allocated"], "of_the_driver": counts["segment.all.allocated"]}
