"""What `pagoda bench offline` compares a model with: the machine's ceilings where the native kernels run it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagoda.planning.hardware import Hardware, main_format

if TYPE_CHECKING:
    from pagoda.cli.bench_limits import Machine
    from pagoda.llm import LLM


@dataclass(frozen=True, slots=True)
class Ceilings:
    """A machine, and what its products with weights of the model's main format can reach at most (operations a second)."""

    machine: Machine
    format_name: str
    products: float

    def hardware(self, bandwidth: float) -> Hardware:
        return self.machine.hardware(bandwidth, {self.format_name: self.products})


@contextlib.contextmanager
def ceilings_of(llm: LLM) -> Iterator[Ceilings | None]:
    """What to compare the model with on its device; None where the native kernels do not run it."""
    device = llm.device
    if device.instruction_set is None:
        yield None
        return
    from pagoda.cli.bench_limits import Machine

    with Machine(device.threads, device.instruction_set) as machine:
        name = main_format(llm.holding.spec, llm.holding.format_of)
        yield Ceilings(machine, name, machine.format_ceiling(name))
