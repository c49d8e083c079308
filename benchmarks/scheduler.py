"""What one scheduling step costs, without any model: `schedule()` and `schedule()` + `update()` in milliseconds.

    python benchmarks/scheduler.py [--json] [--steps N]

Each case has so many running requests, all in decode, and so many waiting behind them. The running ones occupy every
sequence slot, and every `block_size` steps each needs another block. The last case runs out of blocks all the time.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from dataclasses import asdict, dataclass

from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.policies import FirstComeFirstServed
from pagoda.core.request import Request
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import RequestKey, RowResult, RunnerOutput, SchedulerOutput
from pagoda.core.watermark import FixedShare
from pagoda.sampling_params import SamplingParams

PROMPT_TOKENS = 100
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Case:
    running: int
    waiting: int
    blocks_per_sequence: float = 1000.0


@dataclass(frozen=True, slots=True)
class Result:
    running: int
    waiting: int
    steps: int
    schedule_ms_median: float
    step_ms_median: float
    step_ms_p99: float
    preemptions_per_step: float


CASES = (Case(1, 0), Case(64, 1_000), Case(256, 10_000), Case(1_024, 10_000), Case(256, 10_000, 12.0))


def measure(case: Case, steps: int) -> Result:
    """Medians over `steps` decode steps. Building the runner's results is not part of the time."""
    kv = KVCacheManager(int(case.running * case.blocks_per_sequence), BLOCK_SIZE)
    config = SchedulerConfig(case.running, max_batched_tokens=max(2_048, 2 * case.running), prefill_chunk=1_024)
    scheduler = Scheduler(config, kv, FirstComeFirstServed(), watermark=FixedShare(0.01))
    params = SamplingParams(max_tokens=int(BLOCK_SIZE * min(case.blocks_per_sequence, 900) / 2), ignore_eos=True)
    for number in range(case.running + case.waiting):
        key = RequestKey(str(number), 0)
        scheduler.add(Request(key, tuple(range(PROMPT_TOKENS)), params, seed=0, arrival_time=float(number)))
    while scheduler.num_running < case.running and not scheduler.num_preemptions:
        scheduler.update(results(scheduler.schedule()))
    before = scheduler.num_preemptions
    schedule_times, step_times = [], []
    for _ in range(steps):
        begun = time.perf_counter()
        step = scheduler.schedule()
        scheduled = time.perf_counter()
        output = results(step)
        executed = time.perf_counter()
        scheduler.update(output)
        schedule_times.append(scheduled - begun)
        step_times.append(scheduled - begun + time.perf_counter() - executed)
    return Result(
        case.running,
        case.waiting,
        steps,
        round(1e3 * statistics.median(schedule_times), 4),
        round(1e3 * statistics.median(step_times), 4),
        round(1e3 * statistics.quantiles(step_times, n=100)[-1], 4),
        round((scheduler.num_preemptions - before) / steps, 3),
    )


def results(step: SchedulerOutput) -> RunnerOutput:
    return RunnerOutput(step.step, tuple([RowResult(row.key, 7 if row.samples else None) for row in step.rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description="What one scheduling step costs, without any model.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.add_argument("--steps", type=int, default=1_000, help="steps measured per case")
    arguments = parser.parse_args()
    # As a server does after start-up: the requests that wait are no garbage, so the collector need not look at them.
    gc.freeze()
    measured = [measure(case, arguments.steps) for case in CASES]
    if arguments.json:
        host = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
        print(json.dumps({**host, "cases": [asdict(result) for result in measured]}, indent=2))
        return
    print(
        f"{'running':>8} {'waiting':>8} {'schedule ms':>12} {'+ update ms':>12} {'p99 ms':>8} {'preemptions/step':>17}"
    )
    for result in measured:
        print(
            f"{result.running:>8,} {result.waiting:>8,} {result.schedule_ms_median:>12.3f} {result.step_ms_median:>12.3f}"
            f" {result.step_ms_p99:>8.3f} {result.preemptions_per_step:>17.3f}"
        )


if __name__ == "__main__":
    main()
