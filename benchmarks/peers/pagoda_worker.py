"""Pagoda through its public `LLM`. Besides seconds it tells what a step reads, what the memory could give meanwhile, the time
inside native calls, and the memory of its process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker import Engine, Load, Measured, Options, main

from pagoda import LLM, SamplingParams, _native
from pagoda.version import __version__

BLOCK_SIZE = 16
BANDWIDTH_BYTES = 256 << 20  # far more than any cache holds


class NativeClock:
    """Notes when the calls that do a step's work began and ended."""

    def __init__(self) -> None:
        self.steps: list[float] = []  # when each step's program began
        self.calls: list[tuple[float, float]] = []

    def watched(self, call: Callable[..., Any], begins_step: bool = False) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            if begins_step:
                self.steps.append(begun)
            try:
                return call(*arguments, **named)
            finally:
                self.calls.append((begun, time.perf_counter()))

        return timed

    def last_steps(self, count: int) -> tuple[float, float]:
        """From the beginning of the first of the last `count` steps to that of the last: (seconds, of them in calls)."""
        if count < 2:
            return 0.0, 0.0
        first, last = self.steps[-count], self.steps[-1]
        return last - first, sum(ended - begun for begun, ended in self.calls if first <= begun < last)

    def forget(self) -> None:
        self.steps.clear()
        self.calls.clear()


def watch_native_calls() -> NativeClock:
    clock = NativeClock()

    class Program(_native.Program):
        run = clock.watched(_native.Program.run, begins_step=True)
        logits = clock.watched(_native.Program.logits)

    _native.Program = Program  # type: ignore[misc]
    _native.choose = clock.watched(_native.choose)
    return clock


def start(options: Options) -> Engine:
    clock = watch_native_calls()
    llm = LLM(
        options.model,
        progress=False,
        device="cpu",
        threads=options.threads,
        max_num_seqs=options.max_batch,
        max_model_len=options.max_length,
        num_kv_blocks=_blocks(options),
    )
    threads = _native.Threads(llm.device.threads, llm.device.instruction_set)
    file_bytes = _file_bytes(options.model)

    def measure(load: Load) -> Measured:
        before = _native.read_bandwidth(threads, BANDWIDTH_BYTES)
        measured, more = run(llm, load, clock)
        after = _native.read_bandwidth(threads, BANDWIDTH_BYTES)
        more |= {
            "read_bandwidth": (before + after) / 2,
            "resident_bytes": _resident_bytes(),
            "kv_bytes": llm.plan.kv_bytes,
            "file_bytes": file_bytes,
        }
        return Measured(*measured, more)

    return Engine(f"Pagoda {__version__} ({llm.device.instruction_set})", measure)


def run(llm: LLM, load: Load, clock: NativeClock) -> tuple[tuple[float, float, int, list[int]], dict[str, float]]:
    """The last prompt's first token is there when all prompts are computed; from then on only decode steps run."""
    sampling = SamplingParams(max_tokens=load.output_tokens, temperature=0.0, ignore_eos=True)
    steps_before = llm.step_log.totals.steps
    clock.forget()
    begun = time.perf_counter()
    handles = [llm.submit(prompt, sampling) for prompt in load.prompts()]
    last = iter(handles[-1])
    next(last)
    prefilled = time.perf_counter()
    for _ in last:
        pass
    results = [handle.result() for handle in handles]
    ended = time.perf_counter()
    for result in results:
        if result.error is not None:
            raise result.error
    records = llm.step_log.records[steps_before - llm.step_log.totals.steps :]
    final = max(index for index, record in enumerate(records) if record.prefill_tokens)
    decode = records[final + 1 :]
    tokens = sum(record.decode_tokens for record in decode)
    seconds = ended - prefilled if tokens else 0.0
    watched, native = clock.last_steps(len(decode))
    more = {
        "bytes_read": sum(record.num_bytes for record in decode),
        "watched_seconds": watched,
        "native_seconds": native,
    }
    return (prefilled - begun, seconds, tokens, [result.usage.completion_tokens for result in results]), more


def _blocks(options: Options) -> int:
    """Room for the longest prompt, and for the largest batch of short ones (up to 160 tokens), and no more."""
    return max(-(-options.max_length // BLOCK_SIZE), options.max_batch * 160 // BLOCK_SIZE) + 1


def _file_bytes(model: str) -> int:
    path = Path(model)
    return sum(file.stat().st_size for file in path.glob("*.safetensors")) if path.is_dir() else path.stat().st_size


def _resident_bytes() -> int:
    """Anonymous and shared memory of this process; pages of mapped files, which can be dropped, are not its own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.split()}
    return 1024 * (int(values["RssAnon"]) + int(values["RssShmem"]))


if __name__ == "__main__":
    main(start)
