"""Mixing: what one step may hold, prompts and decoding tokens together or apart, and when waiting requests may enter.

The scheduler itself knows no phases. A running request with one position to compute decodes, one with more has a prompt (or,
after a preemption, a text) to compute; a mixing only leaves some of them out of a step.
"""

from __future__ import annotations

from typing import Protocol

from pagoda.core.request import Request

Wanting = list[tuple[Request, int]]
"""Running requests in the policy's order, with how many positions each has to compute before anything new is known."""


class Mixing(Protocol):
    """Asked once a step, then once for each request that could enter. One object serves one scheduler."""

    def choose(self, wanting: Wanting, head_fits: bool) -> Wanting:
        """Those of `wanting` that get a row in this step. head_fits: there is room for the first of the waiting ones.

        When nobody gets a row, `admits` must let somebody in, or all that is wanted must come from steps in flight.
        """
        ...

    def admits(self, num_running: int, num_waiting: int) -> bool:
        """Whether the first of the waiting ones, for whom there is room, enters now. When this says so, it does."""
        ...


class Mixed:
    """Every step holds all that decode, and prompts in what its budget leaves. Nobody decodes late for another's prompt."""

    def choose(self, wanting: Wanting, head_fits: bool) -> Wanting:
        return wanting

    def admits(self, num_running: int, num_waiting: int) -> bool:
        return True


class PrefillFirst:
    """While there are prompts to compute, of running requests or of one that can enter, nobody decodes."""

    def choose(self, wanting: Wanting, head_fits: bool) -> Wanting:
        prompts = [(request, todo) for request, todo in wanting if todo > 1]
        return prompts if prompts or head_fits else wanting

    def admits(self, num_running: int, num_waiting: int) -> bool:
        return True


class DecodeFirst:
    """While anybody decodes, no prompt is computed and nobody enters."""

    def __init__(self) -> None:
        self._decoding = False

    def choose(self, wanting: Wanting, head_fits: bool) -> Wanting:
        decoding = [(request, todo) for request, todo in wanting if todo == 1]
        self._decoding = bool(decoding)
        return decoding or wanting

    def admits(self, num_running: int, num_waiting: int) -> bool:
        return not self._decoding


class OneBatchAtATime:
    """Static batching: when nobody runs, those that wait become a batch, and nobody else enters until all of it have ended.

    They enter as there is room and their prompts are computed, over as many steps as that takes, but no more of them once
    one has ended (or was preempted, who then waits for the next batch).
    """

    def __init__(self, within: Mixing) -> None:
        self._within = within
        self._entered = self._still_to_enter = 0

    def choose(self, wanting: Wanting, head_fits: bool) -> Wanting:
        if len(wanting) < self._entered:
            self._still_to_enter = 0
        return self._within.choose(wanting, head_fits and self._still_to_enter > 0)

    def admits(self, num_running: int, num_waiting: int) -> bool:
        if num_running == 0:
            self._entered, self._still_to_enter = 0, num_waiting
        if self._still_to_enter == 0 or not self._within.admits(num_running, num_waiting):
            return False
        self._entered += 1
        self._still_to_enter -= 1
        return True
