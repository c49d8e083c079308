"""What a simulation found: what became of every request, and what each replica did."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import overload

from pagoda.simulation.workload import Arrival, Outcome


class Outcomes(Sequence[Outcome]):
    """A sequence of outcomes that keeps 48 bytes for each, so that a million of them are no burden.

    The columns are for whoever works with all of them at once: arrays (`numpy.frombuffer` takes them as they are) of times in
    seconds, NaN where an outcome has None, and of lengths in tokens.
    """

    def __init__(self) -> None:
        self.arrival_time = array("d")
        self.first_token = array("d")
        self.end = array("d")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self._replica = array("l")
        self._num_preemptions = array("l")
        self._prefixes: dict[int, tuple[str | None, int]] = {}
        self._refusals: dict[int, str] = {}

    def append(self, outcome: Outcome) -> None:
        arrival = outcome.arrival
        if arrival.prefix is not None or arrival.prefix_tokens:
            self._prefixes[len(self)] = (arrival.prefix, arrival.prefix_tokens)
        if outcome.refusal is not None:
            self._refusals[len(self)] = outcome.refusal
        self.arrival_time.append(arrival.time)
        self.prompt_tokens.append(arrival.prompt_tokens)
        self.output_tokens.append(arrival.output_tokens)
        self.first_token.append(nan if outcome.first_token is None else outcome.first_token)
        self.end.append(nan if outcome.end is None else outcome.end)
        self._replica.append(outcome.replica)
        self._num_preemptions.append(outcome.num_preemptions)

    def __len__(self) -> int:
        return len(self._replica)

    def __iter__(self) -> Iterator[Outcome]:
        return map(self._at, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        found = range(len(self))[index]
        return self._at(found) if isinstance(found, int) else [self._at(each) for each in found]

    def _at(self, index: int) -> Outcome:
        first_token, end = self.first_token[index], self.end[index]
        prefix, prefix_tokens = self._prefixes.get(index, (None, 0))
        return Outcome(
            Arrival(
                self.arrival_time[index], self.prompt_tokens[index], self.output_tokens[index], prefix, prefix_tokens
            ),
            None if isnan(first_token) else first_token,
            None if isnan(end) else end,
            self._replica[index],
            self._num_preemptions[index],
            self._refusals.get(index),
        )


@dataclass(slots=True)
class ReplicaUse:
    """What one replica did. Those that end in `_seconds` are integrals over the virtual clock: divided by the simulated
    duration, they are means. Blocks and slots (a slot holds one token) count while a step runs; between steps of an idle
    replica nothing is in use.

    busy_seconds: in which it was in a step.
    num_tokens: computed, prompt and output, those that preemption lost included. num_lost_tokens: just these.
    num_found_tokens: not computed, since the prefix cache had them.
    block_seconds: blocks in use. peak_blocks: the most at any time.
    empty_slot_seconds: allocated slots without a token. stranded_block_seconds: free blocks outside of the largest
        allocation that is possible, which is external fragmentation; none when blocks are paged.
    transferred_bytes: K and V sent to replicas that decode.
    """

    busy_seconds: float = 0.0
    num_steps: int = 0
    num_tokens: int = 0
    num_preemptions: int = 0
    num_lost_tokens: int = 0
    num_found_tokens: int = 0
    block_seconds: float = 0.0
    peak_blocks: int = 0
    empty_slot_seconds: float = 0.0
    stranded_block_seconds: float = 0.0
    transferred_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """outcomes: of every arrival, one each, in the order in which they ended (or were refused).

    started, ended: of the virtual clock; the first arrival, and the last thing that happened.
    block_size, num_blocks: of a replica, as the means below need them.
    """

    outcomes: Outcomes
    replicas: tuple[ReplicaUse, ...]
    started: float
    ended: float
    num_blocks: int
    block_size: int

    @property
    def duration(self) -> float:
        return self.ended - self.started

    @property
    def utilisation(self) -> float:
        """Share of the duration in which replicas were in a step, over all of them."""
        return self._mean(sum(use.busy_seconds for use in self.replicas))

    @property
    def num_preemptions(self) -> int:
        return sum(use.num_preemptions for use in self.replicas)

    @property
    def kv_use(self) -> float:
        """Share of the KV blocks in use: mean over time and replicas."""
        return self._mean(sum(use.block_seconds for use in self.replicas)) / self.num_blocks

    @property
    def kv_peak(self) -> float:
        """The largest share of its KV blocks that any replica had in use."""
        return max((use.peak_blocks for use in self.replicas), default=0) / self.num_blocks

    @property
    def kv_waste(self) -> float:
        """Share of the allocated slots that held no token: the ends of last blocks, and what is reserved for later."""
        slots = self.block_size * sum(use.block_seconds for use in self.replicas)
        return sum(use.empty_slot_seconds for use in self.replicas) / slots if slots else 0.0

    @property
    def kv_stranded(self) -> float:
        """Share of the KV blocks that were free, but not where a request could have used them; mean as `kv_use`."""
        return self._mean(sum(use.stranded_block_seconds for use in self.replicas)) / self.num_blocks

    def _mean(self, integral: float) -> float:
        whole = self.duration * len(self.replicas)
        return integral / whole if whole else 0.0
