"""What `pagoda bench calibrate` does: it serves the model, streams loads from it, and fits a timer to the steps they took.

The engine is measured in a server at work: making text and sending it takes time from the same processor.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import IO, Any

from pagoda.cli.calibration_loads import Load, loads
from pagoda.config import ServerConfig
from pagoda.errors import PagodaError
from pagoda.llm import AsyncLLM
from pagoda.planning.calibrated_time import CalibratedTimer
from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.step_fit import fit
from pagoda.planning.step_time import StepTimer
from pagoda.progress import Progress
from pagoda.telemetry.steps import StepRecord
from pagoda.version import __version__

SEED = 0
MOST_OF_A_ROUND = 0.15  # of all the time: a load that takes longer is left out
# Prompts are made of its tokens in random order, so that models go on in words: of other tokens many show nothing.
WORDS = (
    "In the morning the market fills with people: farmers bring apples, cheese and honey, somebody tunes an old violin, and a "
    "child asks why bread smells best before it is cut. By noon most of it is sold. What is left goes to the kitchen near the "
    "church, where soup has been cooking since six, and whoever is hungry may sit down; nobody counts plates or asks for names."
)
# Where half of the steps lie further than this beside the fit, something else was at work: alone, machines came to 4 to 10%.
UNREST = 0.15
WARM_UP = Load("batch", 2, 2, (8, 8), (4, 4))


@dataclass(slots=True)
class Measured:
    """costs, seconds: of steps, each from its beginning to that of the next. request_seconds: of prompts alone, what their
    first token took beyond their steps. num_loads: of how many loads."""

    costs: list[StepCost] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    request_seconds: list[float] = field(default_factory=list)
    num_loads: int = 0

    def ratios(self, timer: StepTimer) -> list[float]:
        """What each step took over what the timer says of it."""
        return [seconds / timer.seconds(cost) for cost, seconds in zip(self.costs, self.seconds, strict=True)]


def calibrate(llm: AsyncLLM, seconds: float, bars: Progress) -> tuple[CalibratedTimer, Measured]:
    """Measure for about so many seconds, and fit. Called in the main thread. Raises `PagodaError` where that fails."""
    measured = measure(llm, seconds, bars)
    costs = CostModel(llm.spec, llm.holding.format_of, llm.holding.kv_held)
    timer = fit(
        measured.costs,
        measured.seconds,
        model=llm.config.model,
        flops_per_token=costs.flops_per_token,
        machine=str(llm.device),
        version=__version__,
        request_seconds=median(measured.request_seconds),
    )
    return timer, measured


def measure(llm: AsyncLLM, seconds: float, bars: Progress) -> Measured:
    """Serve on a free port of this machine, with a client in a process of its own, until all is measured."""
    from pagoda.server.app import create_app
    from pagoda.server.metrics import ServerMetrics
    from pagoda.server.run import bind, run
    from pagoda.server.service import Service

    config = ServerConfig(host="127.0.0.1", port=0)
    measured, failures, done = Measured(), [], threading.Event()
    with bind(config) as listener, _client(*listener.getsockname()) as client:
        service = Service(llm, config, ServerMetrics(llm, llm.config.model))

        def drive() -> None:
            try:
                _drive(llm, client, seconds, measured, bars)
            except Exception as error:
                failures.append(error)
            if not service.draining:  # else somebody has ended it already
                done.set()
                os.kill(os.getpid(), signal.SIGTERM)  # how a server is ended

        driver = threading.Thread(target=drive, name="pagoda-bench", daemon=True)
        try:
            run(create_app(service), service, listener, driver.start)
        finally:
            client.terminate()
    if not done.is_set():
        raise KeyboardInterrupt
    if failures:
        raise failures[0]
    return measured


def _client(host: str, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pagoda.cli.streaming_client", host, str(port)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _drive(llm: AsyncLLM, client: subprocess.Popen[str], seconds: float, measured: Measured, bars: Progress) -> None:
    """All loads in turn, the cheapest first, and again while there is time; those that would take too much of it never."""
    config, plan = llm.config, llm.plan
    numbers = random.Random(SEED)
    planned = loads(
        config.max_num_seqs, config.max_batched_tokens, plan.max_model_len, plan.num_blocks * plan.block_size
    )
    _run(llm, client, WARM_UP, numbers)
    took: dict[Load, float] = {}
    rate = 0.0  # seconds a prompt token, of the dearest load so far
    started = time.perf_counter()
    while True:
        for load in planned:
            spent = time.perf_counter() - started
            bars("Measuring", min(spent, seconds), seconds)
            expected = took.get(load, load.prefill_tokens * rate)
            if expected > MOST_OF_A_ROUND * seconds or (took and spent + expected > seconds and load in took):
                continue
            begun = time.perf_counter()
            times, records = _run(llm, client, load, numbers)
            took[load] = time.perf_counter() - begun
            rate = took[load] / load.prefill_tokens
            _keep(load, times, records, measured)
        if time.perf_counter() - started > (1 - MOST_OF_A_ROUND) * seconds:
            return


def _keep(load: Load, times: Sequence[Sequence[float]], records: Sequence[StepRecord], measured: Measured) -> None:
    measured.num_loads += 1
    begun = [record.ended - record.seconds for record in records]
    # While a batch starts, its requests are still being read, which a server at work does at another time.
    skipped = 1 if load.kind == "batch" and load.requests > 1 else 0
    for record, (this, following) in list(zip(records, pairwise(begun), strict=False))[skipped:]:
        measured.costs.append(record.cost)
        measured.seconds.append(following - this)
    if load.kind == "prompt":
        sent, first, _ = times[0]
        # The last step is the second token's; between the first's and it no step of the prompt is.
        measured.request_seconds.append(first - sent - (begun[-1] - begun[0]))


def _run(
    llm: AsyncLLM, client: subprocess.Popen[str], load: Load, numbers: random.Random
) -> tuple[list[list[float]], Sequence[StepRecord]]:
    """One load: (sent, first token, end) of each request, and the steps it took."""
    vocabulary = sorted(set(llm.tokenizer.encode(WORDS)))
    requests = [
        (numbers.choices(vocabulary, k=numbers.randint(*load.prompt_tokens)), numbers.randint(*load.output_tokens))
        for _ in range(load.requests)
    ]
    before = llm.step_log.totals.steps
    answer = _ask(client, {"concurrency": load.concurrency, "requests": requests})
    records = llm.step_log.records
    return answer, records[max(0, len(records) - (llm.step_log.totals.steps - before)) :]


def _ask(client: subprocess.Popen[str], load: dict[str, Any]) -> Any:
    to, back = _pipe(client.stdin), _pipe(client.stdout)
    to.write(json.dumps(load) + "\n")
    to.flush()
    line = back.readline()
    answer = json.loads(line) if line else {"error": "the client's process ended"}
    if isinstance(answer, dict):
        raise PagodaError(f"measuring failed: {answer['error']}")
    return answer


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def report_of(timer: CalibratedTimer, measured: Measured) -> dict[str, Any]:
    """Under the names that `docs/cli.md` explains."""
    ratios = measured.ratios(timer)
    return {
        "model": timer.model,
        "machine": timer.machine,
        "loads": measured.num_loads,
        "steps": len(ratios),
        "median_error": median(abs(ratio - 1) for ratio in ratios),
        "spread": list(timer.spread),
        "request_seconds": timer.request_seconds,
        "step_seconds": timer.product_seconds[0],
        "seconds_per_kv_byte": timer.seconds_per_kv_byte,
        "seconds_per_attention_flop": timer.seconds_per_attention_flop,
        "seconds_per_row": timer.seconds_per_row,
    }


def unrest(report: dict[str, Any]) -> str | None:
    """What to tell of a fit that is not to be relied on."""
    if report["median_error"] <= UNREST:
        return None
    return (
        f"half of the steps took {report['median_error']:.0%} more or less than fitted, where {UNREST:.0%} is a lot: something "
        "else used this machine. What was saved will mislead; measure again when it is idle."
    )


def table_of(report: dict[str, Any]) -> list[tuple[str, str]]:
    """For people: (what, how much)."""
    low, high = report["spread"]
    return [
        ("measured", f"{report['steps']:,} steps of {report['loads']} loads, {report['model']} on {report['machine']}"),
        ("error of the fit", f"{report['median_error']:.1%} (median); 90% of steps took {low:.2f} to {high:.2f} of it"),
        ("smallest step", f"{1e3 * report['step_seconds']:,.2f} ms without attention"),
        ("a request besides", f"{1e3 * report['request_seconds']:,.2f} ms before its first token"),
        ("saved to", report["output"]),
    ]
