"""Replica: one engine on the virtual clock: the real scheduler and KV blocks, and a simulated runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.mixing import DecodeFirst, Mixed, Mixing, OneBatchAtATime, PrefillFirst
from pagoda.core.policies import FirstComeFirstServed
from pagoda.core.prefix_cache import PrefixCache
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import TokenEvent
from pagoda.planning.costs import CostModel
from pagoda.planning.step_time import StepTimer
from pagoda.runner.simulated import SimulatedRunner
from pagoda.simulation.cluster import ClusterConfig, Order
from pagoda.simulation.result import ReplicaUse

ORDERS: Mapping[Order, Callable[[], Mixing]] = MappingProxyType(
    {"mixed": Mixed, "prefill-first": PrefillFirst, "decode-first": DecodeFirst}
)


class Replica:
    """What `EngineCore` is to a real engine. A step begins with `start` and ends, `start`'s seconds later, with `finish`."""

    def __init__(self, config: ClusterConfig, costs: CostModel, timer: StepTimer) -> None:
        self.use = ReplicaUse()
        self.scheduler = make_scheduler(config)
        self._runner = SimulatedRunner(costs, timer)

    def start(self) -> float | None:
        """Schedule the next step and return its seconds; None when there is nothing to do."""
        step = self.scheduler.schedule()
        if not step.rows:
            return None
        self._runner.submit(step)
        self._record(self._runner.step_cost.num_tokens, self._runner.step_seconds)
        return self._runner.step_seconds

    def finish(self) -> list[TokenEvent]:
        """Take in the results of the step under way, if there is one."""
        return self.scheduler.update(self._runner.collect()) if self.scheduler.in_flight else []

    def _record(self, num_tokens: int, seconds: float) -> None:
        use, scheduler, kv = self.use, self.scheduler, self.scheduler.kv
        use.busy_seconds += seconds
        use.num_steps += 1
        use.num_tokens += num_tokens
        use.num_preemptions += len(scheduler.preemptions)
        use.num_lost_tokens += sum([preemption.lost_tokens for preemption in scheduler.preemptions])
        free = kv.num_free_blocks
        blocks = kv.num_blocks - free
        tokens_held = sum([request.num_computed_tokens for request in scheduler.running])
        if kv.window is not None:
            tokens_held -= kv.block_size * sum([kv.num_passed(request.key) for request in scheduler.running])
        if kv.shares:
            # What several requests hold is there once; shared blocks are full.
            tokens_held -= kv.block_size * (sum(map(len, kv.tables.values())) - blocks)
            use.num_found_tokens = kv.prefix_stats.hit_tokens
        use.block_seconds += blocks * seconds
        use.peak_blocks = max(use.peak_blocks, blocks)
        use.empty_slot_seconds += (blocks * kv.block_size - tokens_held) * seconds
        use.stranded_block_seconds += (free - kv.largest_allocation) * seconds


def make_scheduler(config: ClusterConfig) -> Scheduler:
    """A scheduler with KV blocks of its own, as the engine makes them but for what `config` wants otherwise."""
    limits = SchedulerConfig(config.max_num_seqs, config.max_batched_tokens, config.prefill_chunk)
    manager: KVManager
    if config.allocation == "contiguous":
        manager = ContiguousKVCacheManager(config.num_blocks, config.block_size)
    else:
        cache = PrefixCache(config.block_size) if config.prefix_cache else None
        manager = KVCacheManager(config.num_blocks, config.block_size, cache, config.window)
    mixing = ORDERS[config.order]()
    if config.batching == "static":
        mixing = OneBatchAtATime(mixing)
    return Scheduler(limits, manager, FirstComeFirstServed(), mixing)
