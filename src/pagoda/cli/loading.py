"""Loading a model for a command: its memory, as a byte ledger, is shown where somebody watches."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from pagoda.cli.console import note
from pagoda.config import EngineConfig

if TYPE_CHECKING:
    from pagoda.llm import LLM
    from pagoda.planning.ledger import MemoryPlan


def load(config: EngineConfig) -> LLM:
    """The model, ready. On a terminal stderr first says where its memory will go, and then where it went.

    Raises what `LLM` raises.
    """
    from pagoda.llm import LLM
    from pagoda.planning.ledger import format_held, format_ledger

    watched = sys.stderr.isatty()

    def show(plan: MemoryPlan) -> None:
        if watched:
            note(format_ledger(plan))

    llm = LLM(on_plan=show, **dataclasses.asdict(config))
    if watched:
        note(f"Loaded: {format_held(llm.plan, llm.held)}.\n")
    return llm
