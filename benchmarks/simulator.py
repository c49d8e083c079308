"""How fast the simulator is: simulated requests a minute, on one core.

    python benchmarks/simulator.py [--json] [--requests N] [--replicas N] [--repeat N]

LLaMA-3-8B on A100s, prompts of 512 tokens, outputs of 128, 64 at once a replica, steps of at most 512 tokens. Poisson arrivals
come 5% faster than the replicas serve them, so that nearly every step is full. Of several runs, all the same, the fastest
and the median are printed. Seconds are of this process on the processor, not of the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import statistics
import time
from collections.abc import Iterator

from pagoda.models.describe import describe_model
from pagoda.planning.costs import CostModel
from pagoda.planning.devices import parse_device
from pagoda.planning.engine_time import engine_timer
from pagoda.simulation.cluster import ClusterConfig
from pagoda.simulation.result import Result
from pagoda.simulation.simulate import simulate
from pagoda.simulation.workload import Arrival

PROMPT_TOKENS, OUTPUT_TOKENS, AT_ONCE, BUDGET = 512, 128, 64, 512
MODEL, DEVICE = "llama-3-8b", "a100-80g"
OVERLOAD = 1.05


class Case:
    def __init__(self, replicas: int) -> None:
        model = describe_model(MODEL)
        timer = engine_timer(model.spec, model.stored, parse_device(DEVICE))
        assert timer is not None
        self.timer, self.costs = timer, CostModel(model.spec, model.stored, 2)
        self.cluster = ClusterConfig(
            num_blocks=4096,
            block_size=16,
            max_num_seqs=AT_ONCE,
            max_batched_tokens=BUDGET,
            prefill_chunk=BUDGET // 2,
            num_replicas=replicas,
            routing="least-loaded",
        )
        flood = self.run([Arrival(0.0, PROMPT_TOKENS, OUTPUT_TOKENS)] * (8 * AT_ONCE * replicas))
        self.rate = OVERLOAD * len(flood.outcomes) / flood.duration

    def arrivals(self, count: int) -> Iterator[Arrival]:
        numbers, now = random.Random(0), 0.0
        for _ in range(count):
            now += numbers.expovariate(self.rate)
            yield Arrival(now, PROMPT_TOKENS, OUTPUT_TOKENS)

    def run(self, arrivals: list[Arrival] | Iterator[Arrival]) -> Result:
        return simulate(arrivals, self.cluster, self.costs, self.timer)


def measure(requests: int, replicas: int, repeat: int) -> dict[str, float]:
    case, seconds = Case(replicas), []
    for _ in range(repeat):
        begun = time.process_time()
        result = case.run(case.arrivals(requests))
        seconds.append(time.process_time() - begun)
    steps, tokens = (sum(getattr(use, name) for use in result.replicas) for name in ("num_steps", "num_tokens"))
    return {
        "requests": requests,
        "replicas": replicas,
        "simulated_seconds": result.duration,
        "utilisation": result.utilisation,
        "tokens_per_step": tokens / steps,
        "requests_per_minute_best": 60 * requests / min(seconds),
        "requests_per_minute_median": 60 * requests / statistics.median(seconds),
        "microseconds_per_output_token": 1e6 * min(seconds) / requests / OUTPUT_TOKENS,
        "microseconds_per_step": 1e6 * min(seconds) / steps,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulated requests a minute, on one core.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of a run")
    parser.add_argument("--replicas", type=int, default=1, help="replicas that serve them")
    parser.add_argument("--repeat", type=int, default=3, help="runs")
    arguments = parser.parse_args()
    measured = measure(arguments.requests, arguments.replicas, arguments.repeat)
    if arguments.json:
        host = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
        print(json.dumps({**host, **measured}, indent=2))
        return
    for name, value in measured.items():
        print(
            f"{name.replace('_', ' '):>32} {value:>14,.6g}"
            if value < 1000
            else f"{name.replace('_', ' '):>32} {value:>14,.0f}"
        )


if __name__ == "__main__":
    main()
