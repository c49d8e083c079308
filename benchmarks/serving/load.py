"""The load: which requests, all different, and what became of them in time."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pagoda.telemetry.summary import percentile

# Prompts are made of the tokens of this text, in random order, so that models go on in words too: after random bytes they
# write bytes that are no characters, and many of their tokens show nothing.
WORDS = (
    "a day may come when the river behind our house is wide and slow, and boats with red sails go down to the sea. "
    "They carry bread, salt, wool and letters for people who live far away; some return before winter, others never do. "
    "My mother used to count them from her window while the kettle sang, and she told us where each of them was going. "
    "What did I learn there? That every town has its own bell, that good questions last longer than answers, and that "
    "nobody knows how deep the water is until the summer when it falls and old stones look out of it."
)


@dataclass(frozen=True, slots=True)
class Shape:
    """requests: how many, at most `concurrency` at once. Lengths in tokens, each from … to, evenly spread."""

    requests: int
    concurrency: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]

    @property
    def expected_output_tokens(self) -> float:
        return self.requests * sum(self.output_tokens) / 2


@dataclass(frozen=True, slots=True)
class Request:
    prompt_token_ids: list[int]
    max_tokens: int


@dataclass(slots=True)
class Timeline:
    """One request in seconds of one clock. arrivals: when its messages with output came; ended: the last of all."""

    prompt_tokens: int
    output_tokens: int
    sent: float
    arrivals: list[float]
    ended: float


def requests(shape: Shape, seed: int, vocabulary: Sequence[int]) -> list[Request]:
    """The same for the same seed; no two prompts begin alike, so nothing kept from one helps another."""
    numbers = random.Random(seed)
    return [
        Request(
            numbers.choices(vocabulary, k=numbers.randint(*shape.prompt_tokens)), numbers.randint(*shape.output_tokens)
        )
        for _ in range(shape.requests)
    ]


def summary(runs: Sequence[Sequence[Timeline]]) -> dict[str, object]:
    """Rates over all runs together, percentiles over all their requests.

    ttft: from sending to the first token. tpot: (last token − first token) ÷ (output tokens − 1), a request's mean.
    inter_token: from message to message. e2e: from sending to the end. Seconds.
    """
    timelines = [timeline for run in runs for timeline in run]
    wall = sum(max(line.ended for line in run) - min(line.sent for line in run) for run in runs)
    prompt = sum(line.prompt_tokens for line in timelines)
    output = sum(line.output_tokens for line in timelines)
    gaps = [after - before for line in timelines for before, after in pairwise(line.arrivals)]
    return {
        "requests": len(timelines),
        "seconds": wall,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "messages": sum(len(line.arrivals) for line in timelines),
        "output_tokens_per_second": output / wall,
        "total_tokens_per_second": (prompt + output) / wall,
        "ttft_seconds": _spread(timelines, lambda line: line.arrivals[0] - line.sent),
        "tpot_seconds": _spread([line for line in timelines if line.output_tokens > 1], _tpot),
        "inter_token_seconds": _percentiles(gaps),
        "e2e_seconds": _spread(timelines, lambda line: line.ended - line.sent),
    }


def _tpot(line: Timeline) -> float:
    return (line.arrivals[-1] - line.arrivals[0]) / (line.output_tokens - 1)


def _spread(timelines: Sequence[Timeline], figure: Callable[[Timeline], float]) -> dict[str, float | None]:
    return _percentiles([figure(line) for line in timelines])


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    ascending = sorted(values)
    spread = {f"p{percent}": percentile(ascending, percent) for percent in (50, 90, 99)}
    return {"mean": statistics.fmean(ascending) if ascending else None, **spread}
