"""Servers under mixed load: 64 streaming requests at once, every prompt new, given to Pagoda and to llama-server in turn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from serving import client, processes
from serving.load import Shape, Timeline, requests, summary

from comparing.cases import LLAMA_CPP, PAGODA
from comparing.engines import EngineError
from pagoda.loading.default_model import default_model_path

SHAPE = Shape(64, 64, (32, 512), (16, 128))
WARM_UP = Shape(4, 4, (32, 32), (16, 16))
TARGET = 3.5  # × llama-server's total tokens a second
START_SECONDS = 120


def compare(
    environments: Path, *, threads: int, rounds: int, seed: int, say: Callable[[str], None], shape: Shape = SHAPE
) -> dict[str, Any]:
    """Each side's rates and times over all rounds, and the ratios round by round. A server that is missing is named."""
    length = max(shape.prompt_tokens) + max(shape.output_tokens)
    settings: dict[str, int | float | str] = {
        "threads": threads,
        "device": "cpu",
        "max_model_len": length,
        "max_num_seqs": shape.concurrency,
    }
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(processes.server(str(default_model_path()), settings))
        vocabulary, urls = ours.vocabulary(), {PAGODA: (ours.url, ours.model())}
        try:
            there = llama_server(environments, default_model_path(), threads, shape.concurrency, length)
            urls[LLAMA_CPP] = (stack.enter_context(there), "default")
        except EngineError as error:
            say(str(error))
        runs: dict[str, list[list[Timeline]]] = {kind: [] for kind in urls}
        for number in range(-1, rounds):
            for kind in urls if number % 2 else reversed(urls):
                url, name = urls[kind]
                planned = requests(WARM_UP if number < 0 else shape, seed + number, vocabulary)
                timelines = asyncio.run(client.run(url, name, planned, shape.concurrency, lambda: None))
                if number >= 0:
                    runs[kind].append(timelines)
            say(f"mixed load: round {number + 1} of {rounds}")
    return report(runs)


def report(runs: dict[str, list[list[Timeline]]]) -> dict[str, Any]:
    sides = {kind: summary(of_one) for kind, of_one in runs.items() if of_one}
    found: dict[str, Any] = {"sides": sides, "target": TARGET}
    if LLAMA_CPP in sides:
        each = [[_total_rate(run) for run in runs[kind]] for kind in (PAGODA, LLAMA_CPP)]
        ratio = median(ours / theirs for ours, theirs in zip(*each, strict=True))
        p99 = {kind: side["tpot_seconds"]["p99"] for kind, side in sides.items()}  # type: ignore[index]
        found |= {"ratio": ratio, "met": ratio >= TARGET and p99[PAGODA] < p99[LLAMA_CPP]}
    return found


def _total_rate(run: Sequence[Timeline]) -> float:
    rate = summary([run])["total_tokens_per_second"]
    assert isinstance(rate, float)
    return rate


def lines(found: dict[str, Any]) -> list[str]:
    """For people: each server, then how they compare."""
    shown = [
        f"mixed load, {kind}: {side['total_tokens_per_second']:,.0f} tokens/s in all,"
        f" {side['output_tokens_per_second']:,.0f} out; time per output token p50"
        f" {1e3 * side['tpot_seconds']['p50']:,.0f} ms, p99 {1e3 * side['tpot_seconds']['p99']:,.0f} ms"
        for kind, side in found["sides"].items()
    ]
    if "ratio" in found:
        met = "met" if found["met"] else "not met"
        shown.append(
            f"mixed load: {found['ratio']:.2f} × llama-server (target {found['target']}, and a lower p99): {met}"
        )
    return shown


@contextlib.contextmanager
def llama_server(environments: Path, model: Path, threads: int, slots: int, length: int) -> Iterator[str]:
    """llama-server with so many slots of `length` tokens; its URL. Raises `EngineError` where it is missing or ends."""
    programs = sorted((environments / "llamabin").glob("**/llama-server"))
    if not programs:
        raise EngineError(f"llama-server is missing: benchmarks/peers/install.sh {environments} llamabin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [programs[0], "--model", model, "--host", "127.0.0.1", "--port", port, "--parallel", slots]
    command += ["--ctx-size", slots * -(-length // 256) * 256, "--threads", threads, "--threads-batch", threads]
    command += ["--flash-attn", "on", "--cache-ram", 0, "--no-webui", "--log-disable"]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(url, process)
            yield url
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise EngineError(f"llama-server is not ready: it {'ended' if process.poll() is not None else 'still loads'}")
