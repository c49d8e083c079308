"""What `pagoda bench offline` measures: the engine's own step records while it runs random prompts."""

from __future__ import annotations

import dataclasses
import functools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from pagoda.progress import Progress
from pagoda.sampling_params import SamplingParams
from pagoda.telemetry.steps import StepRecord
from pagoda.telemetry.summary import StepSummary, summarize

if TYPE_CHECKING:
    from pagoda.cli.bench_ceilings import Ceilings
    from pagoda.llm import LLM

SEED = 0


@dataclass(frozen=True, slots=True)
class Load:
    """`batch` prompts of `prompt_tokens` random ids, each continued by exactly `output_tokens` tokens."""

    batch: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One repetition. decode: of steps in which every sequence decodes, if there were any, else of all decode steps.

    prefill_flops: of all prefill steps together. bandwidth: what could be read just before and after, the mean.
    """

    prefill: StepSummary
    prefill_flops: int
    decode: StepSummary
    seconds: float
    bandwidth: float | None = None


def measure(llm: LLM, ceilings: Ceilings | None, load: Load, repeat: int, bars: Progress) -> dict[str, Any]:
    """Run the load `repeat` times after once to warm up; the medians, under the names that `docs/cli.md` explains.

    ceilings: None where they are not known. The bandwidth is measured before and after each repetition, since on a machine
    that is shared it changes all the time.
    """
    numbers = random.Random(SEED)
    vocabulary = range(llm.tokenizer.vocab_size)
    total = (repeat + 1) * load.output_tokens
    runs = []
    bandwidths: list[float] = []
    for index in range(repeat + 1):
        # New prompts each time, so that nothing kept from one repetition helps the next.
        prompts = [numbers.choices(vocabulary, k=load.prompt_tokens) for _ in range(load.batch)]
        show = functools.partial(_show, bars, index * load.output_tokens, total)
        run = _run(llm, prompts, load, show)
        if ceilings is not None:
            bandwidths.append(ceilings.machine.read_bandwidth())
            run = dataclasses.replace(run, bandwidth=fmean(bandwidths[-2:]))
        runs.append(run)
    return _report(runs[1:], load, ceilings)


def _show(bars: Progress, done_before: int, total: int, done: int) -> None:
    bars("Measuring", done_before + done, total)


def _run(llm: LLM, prompts: Sequence[Sequence[int]], load: Load, on_tokens: Callable[[int], None]) -> _Run:
    prefill = _records(llm, prompts, 1, on_tokens)
    started = time.perf_counter()
    records = _records(llm, prompts, load.output_tokens, on_tokens)
    seconds = time.perf_counter() - started
    decode = [record for record in records if not record.prefill_tokens]
    full = [record for record in decode if record.decode_tokens == load.batch]
    return _Run(summarize(prefill), sum(record.flops for record in prefill), summarize(full or decode), seconds)


def _records(
    llm: LLM, prompts: Sequence[Sequence[int]], max_tokens: int, on_tokens: Callable[[int], None]
) -> Sequence[StepRecord]:
    """The steps that it took to generate so many tokens for each prompt."""
    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    before = llm.step_log.totals.steps
    handles = [llm.submit(prompt, sampling) for prompt in prompts]
    # The last to be admitted is the last to finish, so its tokens show how far the run is.
    for count, _ in enumerate(handles[-1], start=1):
        on_tokens(count)
    for handle in handles:
        if (error := handle.result().error) is not None:
            raise error
    records: Sequence[StepRecord] = llm.step_log.records
    return records[max(0, len(records) - (llm.step_log.totals.steps - before)) :]


def _fraction_of_bandwidth(run: _Run, ceilings: Ceilings | None) -> float | None:
    """Of decode steps: the least time that reading their bytes takes over the time they took."""
    num_bytes, milliseconds = run.decode.bytes_per_decode_step, run.decode.decode_step_ms
    if ceilings is None or run.bandwidth is None or num_bytes is None or milliseconds is None:
        return None
    return ceilings.hardware(run.bandwidth).fraction_of_bandwidth(round(num_bytes), milliseconds / 1e3)


def _fraction_of_peak(run: _Run, ceilings: Ceilings | None) -> float | None:
    """Of prefill: all operations against what products in the model's main format can reach."""
    if ceilings is None or run.bandwidth is None:
        return None
    hardware = ceilings.hardware(run.bandwidth)
    return hardware.fraction_of_peak_compute(run.prefill_flops, run.prefill.seconds, ceilings.format_name)


def _report(runs: Sequence[_Run], load: Load, ceilings: Ceilings | None) -> dict[str, Any]:
    def over_runs(figure: Callable[[_Run], float | None]) -> float | None:
        known = [value for value in map(figure, runs) if value is not None]
        return median(known) if known else None

    return {
        "batch": load.batch,
        "prompt_tokens": load.prompt_tokens,
        "output_tokens": load.output_tokens,
        "repeat": len(runs),
        "prefill_tokens_per_second": over_runs(lambda run: run.prefill.prefill_tokens_per_second),
        "decode_tokens_per_second": over_runs(lambda run: run.decode.decode_tokens_per_second),
        "decode_step_ms": over_runs(lambda run: run.decode.decode_step_ms_p50),
        "decode_step_ms_p95": over_runs(lambda run: run.decode.decode_step_ms_p95),
        "sequences_per_decode_step": over_runs(lambda run: run.decode.decode_tokens / max(run.decode.steps, 1)),
        "bytes_per_decode_step": over_runs(lambda run: run.decode.bytes_per_decode_step),
        "flops_per_decode_step": over_runs(lambda run: run.decode.flops_per_decode_step),
        "output_tokens_per_second": over_runs(lambda run: load.batch * load.output_tokens / run.seconds),
        "read_bandwidth": over_runs(lambda run: run.bandwidth),
        "fraction_of_bandwidth": over_runs(lambda run: _fraction_of_bandwidth(run, ceilings)),
        "main_format": ceilings.format_name if ceilings else None,
        "peak_operations": ceilings.products if ceilings else None,
        "fraction_of_peak_compute": over_runs(lambda run: _fraction_of_peak(run, ceilings)),
    }
