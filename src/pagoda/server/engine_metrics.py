"""The engine's own state and step totals as Prometheus metrics, read at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pagoda.core.prefix_cache import Miss, PrefixStats
from pagoda.llm import AsyncLLM
from pagoda.version import __version__


class EngineCollector(Collector):
    """Costs the engine nothing: it publishes its state after each turn anyway."""

    def __init__(self, llm: AsyncLLM, model_name: str, prefix: str) -> None:
        self._llm, self._model_name, self._prefix = llm, model_name, prefix

    def collect(self) -> Iterator[Metric]:
        llm, stats, totals = self._llm, self._llm.stats, self._llm.step_log.totals
        yield self._gauge("num_requests_running", "Sequences in the batch.", stats.num_running)
        yield self._gauge("num_requests_waiting", "Sequences that wait for a place in it.", stats.num_waiting)
        yield self._gauge("num_requests_open", "Sequences that were taken and have not ended.", llm.num_open)
        yield self._gauge("kv_cache_usage_perc", "Share of the KV cache in use; 1 is all of it.", stats.kv_usage)
        yield self._gauge("kv_cache_blocks", "Blocks of the KV cache.", stats.num_blocks)
        yield self._gauge("engine_up", "1 while the engine can generate, 0 after it failed.", llm.failure is None)
        yield self._gauge("engine_stalled_seconds", "Age of the step under way; 0 when idle.", stats.stalled_seconds())
        yield self._counter("num_preemptions", "Sequences that lost their blocks to others.", stats.num_preemptions)
        yield self._counter("preempted_tokens", "Computed tokens that they lost.", totals.lost_tokens)
        yield self._gauge("kv_cache_cached_blocks", "Blocks that the prefix cache can find.", stats.num_cached_blocks)
        prefix = stats.prefix
        yield self._counter("prefix_cache_queries", "Tokens looked for in the prefix cache.", prefix.queried_tokens)
        yield self._counter("prefix_cache_hits", "Tokens found in it, not computed again.", prefix.hit_tokens)
        yield self._misses(prefix)
        yield self._counter("kv_cache_violations", "Times that the idle engine's books were wrong.", stats.violations)
        yield self._counter("steps", "Steps of the engine.", totals.steps)
        yield self._counter("step_seconds", "Time in steps.", totals.seconds)
        yield self._counter("step_overhead_seconds", "Of it scheduling and bookkeeping.", totals.overhead_seconds)
        yield self._counter("step_prefill_tokens", "Prompt tokens computed, repeated ones too.", totals.prefill_tokens)
        yield self._counter("step_decode_tokens", "Tokens computed one a step and sequence.", totals.decode_tokens)
        yield self._counter("flops", "Floating-point operations that the steps cannot do without.", totals.flops)
        yield self._counter("bytes", "Bytes of memory that the steps cannot do without.", totals.num_bytes)
        build = GaugeMetricFamily(f"{self._prefix}build_info", "Pagoda's version.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build

    def _misses(self, prefix: PrefixStats) -> Metric:
        labels = ("model_name", "reason")
        family = CounterMetricFamily(f"{self._prefix}prefix_cache_misses", "Sequences that missed.", labels=labels)
        for reason in Miss:
            family.add_metric((self._model_name, reason.value.replace(" ", "_")), prefix.misses[reason])
        return family

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(self._prefix + name, meaning, labels=("model_name",))
        family.add_metric((self._model_name,), value)
        return family

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(self._prefix + name, meaning, labels=("model_name",))
        family.add_metric((self._model_name,), value)
        return family
