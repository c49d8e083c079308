"""Policies: who goes first, and who gives way when the KV blocks run out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from pagoda.config import DEFAULT_PRIORITY_AGEING, EngineConfig
from pagoda.core.request import Request


class Policy(Protocol):
    """`sort_key` is asked once, when a request arrives, so whatever it depends on must not change while it waits.

    Smaller keys go first; requests with equal keys go in the order in which they were added.
    """

    def sort_key(self, request: Request) -> tuple[float, ...]: ...

    def pick_victim(self, running: Sequence[Request]) -> Request:
        """One of `running` (in this policy's order, never empty), to be preempted."""
        ...


class FirstComeFirstServed:
    """By arrival. The last to arrive gives way: it has waited least, and the oldest always makes progress."""

    def sort_key(self, request: Request) -> tuple[float, ...]:
        return (request.arrival_time,)

    def pick_victim(self, running: Sequence[Request]) -> Request:
        return running[-1]


class Priority:
    """By a deadline fixed on arrival: arrival_time + priority × ageing, a lower priority number being more urgent.

    A wait is bounded: nothing that arrives more than (difference of the priorities) × ageing seconds later overtakes.
    The one with the latest deadline gives way.
    """

    def __init__(self, ageing: float) -> None:
        self.ageing = ageing

    def sort_key(self, request: Request) -> tuple[float, ...]:
        return (request.arrival_time + request.priority * self.ageing,)

    def pick_victim(self, running: Sequence[Request]) -> Request:
        return running[-1]


POLICIES: Mapping[str, Callable[[EngineConfig], Policy]] = MappingProxyType(
    {
        "fcfs": lambda config: FirstComeFirstServed(),
        "priority": lambda config: Priority(config.priority_ageing or DEFAULT_PRIORITY_AGEING),
    }
)


def make_policy(config: EngineConfig) -> Policy:
    """The policy that `config.policy` names."""
    return POLICIES[config.policy](config)
