"""Runner: executes steps. The only owner of device memory."""

from __future__ import annotations

from typing import Protocol

from pagoda.core.step import RunnerOutput, SchedulerOutput
from pagoda.planning.ledger import HeldBytes


class Runner(Protocol):
    """Steps are executed in the order submitted; at most one more than is collected may be in flight.

    An exception from either method means that the whole step failed; a fault of one row is in its `RowResult.error`.
    """

    def submit(self, step: SchedulerOutput) -> None:
        """Prepare the step and start it; returns as soon as the device works without the host."""
        ...

    def collect(self) -> RunnerOutput:
        """Wait for the oldest step in flight and return what it did."""
        ...

    def close(self) -> None:
        """Release device memory and threads. Nothing may be called after it but itself, without effect."""
        ...


class LoadedRunner(Runner, Protocol):
    """A runner that holds a model. held: counted once it was loaded, to compare with what was planned."""

    held: HeldBytes

    def forget_all(self) -> None:
        """Another scheduler takes over, so no request runs any more. Not while a step is in flight."""
        ...

    def lose_block(self, block_id: int) -> None:
        """Overwrite one KV block with zeros in every layer before the next step, whoever holds it: what a cache that mixes
        up its blocks does to a text. For experiments. Raises `InvalidValueError` for a block that does not exist."""
        ...
