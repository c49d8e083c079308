"""The two that are compared, each in a process of its own: a server, and the engine alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from serving import client
from serving.cpu import CpuSeconds, cpu_seconds
from serving.load import WORDS, Shape, Timeline, requests
from serving.watch import Watch

BENCHMARKS = Path(__file__).parents[1]
Setting = int | float | str


@dataclass(frozen=True, slots=True)
class Run:
    """What one load did. cpu: of the process with the engine, None if its id is not known. client_cpu: this process's own."""

    timelines: list[Timeline]
    cpu: CpuSeconds | None
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Server:
    """pid: its process, None where somebody else runs it."""

    url: str
    pid: int | None

    def model(self) -> str:
        name: str = _json(f"{self.url}/v1/models")["data"][0]["id"]
        return name

    def vocabulary(self) -> list[int]:
        """Token ids of ordinary words."""
        return sorted(set(_json(f"{self.url}/tokenize", {"prompt": WORDS, "add_special_tokens": False})["tokens"]))

    def run(self, shape: Shape, seed: int, vocabulary: Sequence[int]) -> Run:
        planned, model = requests(shape, seed, vocabulary), self.model()
        cpu, own = cpu_seconds(self.pid) if self.pid else None, time.process_time()
        with Watch("Served", shape.expected_output_tokens) as on_data:
            timelines = asyncio.run(client.run(self.url, model, planned, shape.concurrency, on_data))
        used = cpu_seconds(self.pid) - cpu if self.pid and cpu else None
        return Run(timelines, used, time.process_time() - own)


@dataclass(frozen=True, slots=True)
class Alone:
    """The engine in a process without a server."""

    asked: IO[str]
    answers: IO[str]

    def run(self, shape: Shape, seed: int, vocabulary: Sequence[int]) -> Run:
        self.asked.write(json.dumps({"shape": asdict(shape), "seed": seed, "vocabulary": vocabulary}) + "\n")
        self.asked.flush()
        answer = _line(self.answers)
        return Run([Timeline(**line) for line in answer["timelines"]], CpuSeconds(**answer["cpu"]), 0.0)


@contextmanager
def server(model: str, settings: Mapping[str, Setting]) -> Iterator[Server]:
    """`pagoda serve` on a free port, ready."""
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    pagoda = ("-c", "from pagoda.cli.main import main; main()", "serve")
    with _process(*pagoda, model, "--port", "0", "--json", *options) as process:
        yield Server(_line(_of(process.stdout))["url"], process.pid)


@contextmanager
def alone(model: str, settings: Mapping[str, Setting]) -> Iterator[Alone]:
    with _process("-m", "serving.in_process", model, json.dumps(dict(settings))) as process:
        answers = _of(process.stdout)
        _line(answers)
        yield Alone(_of(process.stdin), answers)


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    # In this folder, where `serving` is found; the model's path was made absolute.
    command, pipe = [sys.executable, *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=BENCHMARKS) as process:
        try:
            yield process
        finally:
            process.terminate()


def _json(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def _of(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe


def _line(pipe: IO[str]) -> dict[str, Any]:
    line = pipe.readline()
    if not line:
        raise RuntimeError("the process ended; it has said why above")
    answer: dict[str, Any] = json.loads(line)
    return answer
