"""One engine in a process of its own: loads a model once, then measures loads as they are asked for, one JSON line each.

On stdout, first `{"engine": "name version", "load_seconds": …}`, then an answer to each line of stdin, which is a `Load`'s
fields: those of `Measured`, or `{"error": "one sentence"}`. Only the standard library is used here, since engines have
environments of their own. Whatever an engine itself prints goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Ordinary tokens in every vocabulary that is measured: none of them is special or padding.
TOKEN_IDS = range(1_000, 40_000)


@dataclass(frozen=True)
class Load:
    """`batch` different random prompts of `prompt_tokens`, each continued greedily by exactly `output_tokens`."""

    batch: int
    prompt_tokens: int
    output_tokens: int
    seed: int

    def prompts(self) -> list[list[int]]:
        numbers = random.Random(f"{self.seed} {self.batch} {self.prompt_tokens}")
        return [numbers.choices(TOKEN_IDS, k=self.prompt_tokens) for _ in range(self.batch)]


@dataclass(frozen=True)
class Measured:
    """prefill_seconds: from the start to the first token of every sequence. decode_seconds: from there to the end, in which
    decode_tokens came (0 of both where only one token was wanted). output_tokens: of each sequence, as counted."""

    prefill_seconds: float
    decode_seconds: float
    decode_tokens: int
    output_tokens: list[int]
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """name: with its version. measure: one load. The shapes to come are not known before, so it must take any."""

    name: str
    measure: Callable[[Load], Measured]


@dataclass(frozen=True)
class Options:
    """max_batch: sequences at once. max_length: of a prompt and its output together, in tokens."""

    model: str
    threads: int
    max_batch: int
    max_length: int


def main(start: Callable[[Options], Engine]) -> None:
    parser = argparse.ArgumentParser(description="One engine, measured as it is told on stdin.")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-batch", type=int, required=True)
    parser.add_argument("--max-length", type=int, required=True)
    options = Options(**vars(parser.parse_args()))
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        begun = time.perf_counter()
        engine = start(options)
        _answer(answers, {"engine": engine.name, "load_seconds": time.perf_counter() - begun})
        for line in sys.stdin:
            try:
                answer = asdict(engine.measure(Load(**json.loads(line))))
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            _answer(answers, answer)


def _answer(answers: Any, answer: Mapping[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
