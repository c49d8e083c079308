"""Engines in processes of their own, which answer one load after the other. Only one of them computes at a time."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comparing.cases import LLAMA_CPP, OPENVINO, PAGODA, VLLM, Load

WORKERS = Path(__file__).parents[1] / "peers"
# The environments that `peers/install.sh` makes, and the worker that runs in each.
ENVIRONMENTS = {LLAMA_CPP: "llama", OPENVINO: "openvino", VLLM: "vllm"}
PROGRAMS = {
    PAGODA: "pagoda_worker.py",
    LLAMA_CPP: "llama_cpp_worker.py",
    OPENVINO: "openvino_worker.py",
    VLLM: "vllm_worker.py",
}


class EngineError(Exception):
    """An engine is not there, does not load the model, or did not do what it was asked. One sentence."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one engine did with one load. more: what only Pagoda's worker tells."""

    prefill_seconds: float
    decode_seconds: float
    decode_tokens: int
    more: Mapping[str, float] = field(default_factory=dict)

    def rate(self, load: Load) -> float:
        """Tokens a second: of the prompts where one token each was wanted, of what came after the first ones elsewhere."""
        if load.is_prefill:
            return load.batch * load.prompt_tokens / self.prefill_seconds
        return self.decode_tokens / self.decode_seconds


class Engine:
    """A worker that has loaded its model. name: with its version, as the engine itself tells it."""

    def __init__(self, kind: str, process: subprocess.Popen[str]) -> None:
        self.kind, self._process = kind, process
        told = self._answer()
        self.name: str = told["engine"]
        self.load_seconds: float = told["load_seconds"]

    def measure(self, load: Load, seed: int) -> Sample:
        """Raises `EngineError`, also for a sequence that has not exactly the tokens that were wanted."""
        asked = {"batch": load.batch, "prompt_tokens": load.prompt_tokens, "output_tokens": load.output_tokens}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked | {"seed": seed}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError(f"{self.kind} has ended") from None
        answer = self._answer()
        return checked(self.kind, load, answer)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"{self.kind} ended; it has said why above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.kind}: {answer['error']}")
        return answer


def checked(kind: str, load: Load, answer: Mapping[str, Any]) -> Sample:
    """The answer as a `Sample`. Raises `EngineError` unless every sequence has its tokens."""
    if list(answer["output_tokens"]) != [load.output_tokens] * load.batch:
        wanted = f"{load.output_tokens} tokens of each of {load.batch} sequences"
        raise EngineError(f"{kind} gave {answer['output_tokens']} tokens, not {wanted}")
    if not load.is_prefill and not 0 < answer["decode_tokens"] <= load.batch * (load.output_tokens - 1):
        raise EngineError(f"{kind} counts {answer['decode_tokens']} tokens of decode, which cannot be")
    return Sample(answer["prefill_seconds"], answer["decode_seconds"], answer["decode_tokens"], answer["more"])


def python_of(kind: str, environments: Path) -> Path:
    """The interpreter that has the engine. Raises `EngineError` where its environment is missing."""
    if kind == PAGODA:
        return Path(sys.executable)
    path = environments / ENVIRONMENTS[kind] / "bin" / "python"
    if not path.exists():
        raise EngineError(f"{kind} is missing: benchmarks/peers/install.sh {environments} {ENVIRONMENTS[kind]}")
    return path


@contextlib.contextmanager
def engine(
    kind: str, environments: Path, model: str, *, threads: int, max_batch: int, max_length: int
) -> Iterator[Engine]:
    """The engine with the model loaded, until the end of the block."""
    command = [python_of(kind, environments), WORKERS / PROGRAMS[kind], model, "--threads", threads]
    command += ["--max-batch", max_batch, "--max-length", max_length]
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, command)), stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Engine(kind, process)
        finally:
            process.terminate()
