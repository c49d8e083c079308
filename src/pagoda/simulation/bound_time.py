"""BoundTimer: the roofline as a clock, for a device on which nobody has measured an engine."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.planning.costs import StepCost
from pagoda.planning.deployment import Deployment
from pagoda.planning.tensor_parallel import Communication


@dataclass(frozen=True, slots=True)
class BoundTimer:
    """A step takes the least time that the hardware permits, divided by `efficiency` (1: nothing can be faster), and what
    the links between devices need. The engine itself takes no time: neither for a step nor for reading a request.

    peak (operations a second) and bandwidth (bytes a second): of all devices of a group together.
    """

    peak: float
    bandwidth: float
    links: Communication
    efficiency: float
    request_seconds: float = 0.0
    spread: tuple[float, float] = (1.0, 1.0)

    @property
    def source(self) -> str:
        if self.efficiency == 1:
            return "nothing can be faster, and real engines are slower"
        return f"assumed: {self.efficiency:g} of the roofline, and no time for the engine itself"

    @classmethod
    def of(cls, deployment: Deployment, efficiency: float) -> BoundTimer:
        num_devices = deployment.question.num_devices
        return cls(deployment.peak * num_devices, deployment.bandwidth * num_devices, deployment.links, efficiency)

    def seconds(self, cost: StepCost) -> float:
        least = max(cost.flops / self.peak, cost.num_bytes / self.bandwidth)
        return least / self.efficiency + self.links.seconds(cost.num_tokens, cost.num_rows)
