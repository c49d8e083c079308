"""Tells which kernels serving asks for that warm-up did not: each would be compiled while somebody waits. Run by
test_cuda_late_kernels.py, for which it prints JSON. Nothing is compiled and nothing launched, so all tokens are 0."""

from __future__ import annotations

import json
import random
import sys
from types import SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from tests.core.driver import Driver, make_request, make_scheduler
from tests.runner.cuda_tiny import BLOCK_SIZE, cuda_runner
from tests.runner.test_cuda_traffic import resolved

MOST_SEQS, MOST_TOKENS = 40, 256


class Gpu:
    """As much of Triton's driver as launchers need."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Kernel:
    """Stands for a compiled one. names: of those that were loaded, each as often as that was done."""

    function, packed_metadata = 0, ()

    def __init__(self, name: str, loaded: list[str]) -> None:
        self._name, self._loaded, self._is_loaded = name, loaded, False

    def launch_metadata(self, *arguments: Any) -> None:
        return None

    def _init_handles(self) -> None:
        if not self._is_loaded:
            self._loaded.append(self._name)
            self._is_loaded = True

    def run(self, *arguments: Any) -> None:
        self._init_handles()


def serve(runner: Any) -> None:
    """Steps of all kinds: alone and among others, of one token and many, with every kind of sampling."""
    numbers = random.Random(0)
    traffic: list[list[tuple[int, dict[str, Any]]]] = [
        [(3, sampling)]
        for sampling in (
            {},
            {"temperature": 0.8},
            {"frequency_penalty": 0.1},
            {"temperature": 0.8, "frequency_penalty": 0.1},
            {"logprobs": 2},
            {"prompt_logprobs": 0},
        )
    ]
    traffic += [[(numbers.randint(1, 9), {}) for _ in range(count)] for count in (2, 3, 7, 16, 17, 31, MOST_SEQS)]
    traffic += [[(numbers.randint(1, 90), {}) for _ in range(count)] for count in (1, 2, 3, 5)]
    mixed: list[dict[str, Any]] = [{"temperature": 0.8}, {"prompt_logprobs": 2}, {}, {"logprobs": 0}]
    traffic.append([(numbers.randint(1, 9), mixed[number % 4]) for number in range(19)])
    for number, requests in enumerate(traffic):
        scheduler = make_scheduler(
            num_blocks=400,
            block_size=BLOCK_SIZE,
            max_num_seqs=MOST_SEQS,
            max_batched_tokens=MOST_TOKENS,
            prefill_chunk=64,
        )
        serving = Driver(scheduler, 1)
        serving.runner = runner
        serving.add(
            *(
                resolved(make_request(f"{number}-{index}", length, 3, **sampling))
                for index, (length, sampling) in enumerate(requests)
            )
        )
        serving.finish()
        runner.forget_all()


def main() -> None:
    model, *quantization = sys.argv[1:]
    compiled: list[str] = []
    loaded: list[str] = []

    def compile_nothing(source: Any, **options: Any) -> Kernel:
        compiled.append(source.fn.__name__)
        return Kernel(source.fn.__name__, loaded)

    driver.set_active(Gpu())
    triton.compiler.compile = compile_nothing
    runner = cuda_runner(
        model,
        400,
        max_num_seqs=MOST_SEQS,
        max_batched_tokens=MOST_TOKENS,
        quantization=quantization[0] if quantization else None,
    )
    place, runner._queue.device = runner._queue.device, SimpleNamespace(type="cuda")  # type: ignore[assignment]
    runner.warm_up(2)
    runner._queue.device = place
    known = len(compiled), len(loaded)
    serve(runner)
    print(json.dumps({"known": compiled[: known[0]], "late": compiled[known[0] :], "loaded late": loaded[known[1] :]}))


if __name__ == "__main__":
    main()
