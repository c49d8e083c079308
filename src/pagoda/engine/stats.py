"""EngineStats: the engine's state as others may see it, published after every turn of its loop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pagoda.core.prefix_cache import PrefixStats


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. turn_time: when the loop last completed a turn, in `time.monotonic()` seconds; has_work: whether another
    is due, so that an old turn_time is a fault. failed_steps: in a row, up to now. Since the start: num_preemptions; prefix,
    what the prefix cache was asked for and had; violations, how often the idle engine's books were wrong.
    num_cached_blocks: whose contents the prefix cache can find, in use or free."""

    turn_time: float
    has_work: bool
    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    num_preemptions: int
    failed_steps: int = 0
    num_cached_blocks: int = 0
    prefix: PrefixStats = field(default_factory=PrefixStats)
    violations: int = 0

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return 1 - self.num_free_blocks / self.num_blocks

    def stalled_seconds(self) -> float:
        """How long the loop has been at the turn that is due; 0 while it has nothing to do."""
        return time.monotonic() - self.turn_time if self.has_work else 0.0
