"""Prometheus metrics of the server and its engine, under the field's usual names after `pagoda_`."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest

from pagoda.llm import AsyncLLM
from pagoda.server.engine_metrics import EngineCollector

PREFIX = "pagoda_"
LABELS = ("model_name",)
FINISHED_REASONS = ("stop", "length", "abort", "error")
# Seconds. From one token of a small model on a good machine to a long answer of a large one on a small machine.
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
FIRST_TOKEN_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_SECONDS = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
TOKEN_COUNTS = tuple(base * 10**power for power in range(5) for base in (1, 2, 5))


class ServerMetrics:
    """A registry of its own; `render` is the text that Prometheus scrapes.

    What happens to requests is counted as it happens; the engine's state is read when somebody scrapes.
    clock: seconds, monotonic.
    """

    def __init__(self, llm: AsyncLLM, model_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._model_name = model_name
        self._registry = CollectorRegistry()
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of admitted requests.")
        self.generation_tokens = self._counter("generation_tokens", "Generated tokens.")
        self._success = Counter(
            f"{PREFIX}request_success",
            "Ended choices by how they ended: stop, length, abort or error.",
            (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        for reason in FINISHED_REASONS:  # a rate needs the zero before the first one
            self.ended(reason, 0)
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From admission to a request's first token.", FIRST_TOKEN_SECONDS
        )
        self.between_tokens = self._histogram(
            "time_per_output_token_seconds", "From one token of a choice to its next.", TOKEN_SECONDS
        )
        self.token_mean = self._histogram(
            "request_time_per_output_token_seconds", "A choice's mean time per token after its first.", TOKEN_SECONDS
        )
        self.request_seconds = self._histogram(
            "e2e_request_latency_seconds", "From admission to the end of a choice.", REQUEST_SECONDS
        )
        self.request_prompt_tokens = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a request.", TOKEN_COUNTS
        )
        self.request_generation_tokens = self._histogram(
            "request_generation_tokens", "Generated tokens of a choice.", TOKEN_COUNTS
        )
        self._registry.register(EngineCollector(llm, model_name, PREFIX))
        ProcessCollector(registry=self._registry)

    def started(self, prompt_tokens: int) -> RequestTimer:
        """A request was admitted."""
        self.prompt_tokens.inc(prompt_tokens)
        self.request_prompt_tokens.observe(prompt_tokens)
        return RequestTimer(self)

    def ended(self, reason: str, count: int = 1) -> None:
        """So many choices ended in this way."""
        self._success.labels(self._model_name, reason).inc(count)

    def render(self) -> bytes:
        """Everything in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(PREFIX + name, meaning, LABELS, registry=self._registry).labels(self._model_name)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(PREFIX + name, meaning, LABELS, buckets=buckets, registry=self._registry)
        return family.labels(self._model_name)


class RequestTimer:
    """One request's times. Call from the event loop; a call costs a few microseconds."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._started = metrics.clock()
        self._choices: dict[int, _Choice] = {}

    def tokens(self, count: int, choice: int = 0) -> None:
        """`count` tokens of one choice arrived just now."""
        if count == 0:
            return
        metrics = self._metrics
        now = metrics.clock()
        metrics.generation_tokens.inc(count)
        known = self._choices.get(choice)
        if known is None:
            if not self._choices:
                metrics.first_token.observe(now - self._started)
            self._choices[choice] = _Choice(now, count)
            return
        each = (now - known.last) / count
        for _ in range(count):
            metrics.between_tokens.observe(each)
        known.last = now
        known.count += count

    def finished(self, reason: str, choice: int = 0) -> None:
        """A choice ended: "stop", "length", "abort" or "error"."""
        metrics = self._metrics
        metrics.ended(reason)
        metrics.request_seconds.observe(metrics.clock() - self._started)
        known = self._choices.get(choice)
        metrics.request_generation_tokens.observe(known.count if known else 0)
        if known is not None and known.last > known.first:
            metrics.token_mean.observe((known.last - known.first) / (known.count - known.first_count))


class _Choice:
    """first, last: when its first and its latest tokens came, monotonic seconds; they may have come several at once."""

    __slots__ = ("count", "first", "first_count", "last")

    def __init__(self, now: float, count: int) -> None:
        self.first = self.last = now
        self.first_count = self.count = count
