"""A small model's costs, step timers that are easy to add up in one's head, and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagoda.planning.costs import CostModel, StepCost
from pagoda.simulation.cluster import ClusterConfig
from tests.planning.specs import tiny

COSTS = CostModel(tiny(), "float16", 2)


@dataclass(frozen=True)
class PerToken:
    """`step` seconds for each step and `token` seconds for each of its tokens."""

    step: float = 1.0
    token: float = 0.0
    request_seconds: float = 0.0
    spread: tuple[float, float] = (1.0, 1.0)

    def seconds(self, cost: StepCost) -> float:
        return self.step + self.token * cost.num_tokens


def cluster(**fields: Any) -> ClusterConfig:
    defaults = {"num_blocks": 64, "block_size": 4, "max_num_seqs": 8, "max_batched_tokens": 32, "prefill_chunk": 16}
    return ClusterConfig(**{**defaults, **fields})
