"""Prompts: token ids that are alike where arrivals say so, and nowhere else, for a prefix cache to find."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.simulation.workload import Arrival


class PlainPrompts:
    """Without a prefix cache only lengths matter, so a prompt takes no memory."""

    def of(self, arrival: Arrival) -> Sequence[int]:
        return range(arrival.prompt_tokens)


class DistinctPrompts:
    """A prompt is the beginning of its prefix's text, then a token that no other prompt has, then zeros.

    That one token tells it from all others in its block and, since a block is known by all that comes before it, in all
    that follow. The text of a prefix begins with a token of its own, for the same reason.
    """

    def __init__(self) -> None:
        self._last_id = 0
        self._prefix_ids: dict[str, int] = {}

    def of(self, arrival: Arrival) -> Sequence[int]:
        shared = arrival.prefix_tokens if arrival.prefix is not None else 0
        own = arrival.prompt_tokens - shared
        return (*self._beginning(arrival.prefix or "", shared), *self._text(self._new_id(), own))

    def _beginning(self, prefix: str, num_tokens: int) -> Sequence[int]:
        if num_tokens and prefix not in self._prefix_ids:
            self._prefix_ids[prefix] = self._new_id()
        return self._text(self._prefix_ids[prefix], num_tokens) if num_tokens else ()

    def _text(self, first: int, num_tokens: int) -> Sequence[int]:
        return (first,) + (0,) * (num_tokens - 1) if num_tokens > 0 else ()

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id
