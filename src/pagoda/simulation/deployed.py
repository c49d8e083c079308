"""What one replica of a deployment is to the simulator: KV blocks, costs of steps, and a clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pagoda.config import EngineConfig
from pagoda.planning.costs import CostModel, StepCost
from pagoda.planning.deployment import Deployment
from pagoda.planning.ledger import MemoryPlan
from pagoda.planning.memory import plan_memory
from pagoda.planning.step_time import StepTimer
from pagoda.simulation.bound_time import BoundTimer

ClockKind = Literal["calibrated", "estimated", "bound"]


@dataclass(frozen=True, slots=True)
class Clock:
    """kind: whether the timer is fitted to measurements of this engine with this model, an estimate from the device's
    ceilings and what engines make of them elsewhere, or the roofline.
    """

    timer: StepTimer
    kind: ClockKind


class GroupCosts(CostModel):
    """Costs of all devices of a tensor-parallel group together, which is what step timers are asked about.

    It is one device's times their number: what every device holds (norms, K and V heads fewer than devices) counts as often.
    """

    def __init__(self, deployment: Deployment) -> None:
        holding = deployment.holding
        super().__init__(deployment.spec, holding.format_of, holding.kv_held)
        self._num_devices = deployment.question.num_devices
        self.kv_bytes_per_token *= self._num_devices

    def step_cost(self, rows: Iterable[tuple[int, int]], num_logit_rows: int | None = None) -> StepCost:
        cost = super().step_cost(rows, num_logit_rows)
        return replace(
            cost,
            flops=cost.flops * self._num_devices,
            weight_bytes=cost.weight_bytes * self._num_devices,
            kv_read_bytes=cost.kv_read_bytes * self._num_devices,
            kv_written_bytes=cost.kv_written_bytes,  # the group's already, by its bytes per token
            attention_flops=cost.attention_flops * self._num_devices,
        )


def costs_of(deployment: Deployment) -> CostModel:
    return deployment.costs if deployment.question.num_devices == 1 else GroupCosts(deployment)


def memory_of(deployment: Deployment, config: EngineConfig) -> MemoryPlan:
    """How one device's memory is divided, by the engine's own formula. Raises what `plan_memory` raises."""
    return plan_memory(deployment.holding, config, usable_bytes=deployment.question.device.memory_bytes)


def clock_of(deployment: Deployment, *, calibrated: bool, efficiency: float | None) -> Clock:
    """The question's timer, which is `calibrated` or an estimate; the roofline where an efficiency is given, or where there
    is no timer, at 1 then.
    """
    timer = deployment.question.timer
    if timer is not None and efficiency is None:
        return Clock(timer, "calibrated" if calibrated else "estimated")
    return Clock(BoundTimer.of(deployment, efficiency or 1.0), "bound")
