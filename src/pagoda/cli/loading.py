"""Loading a model for a command: its memory, as a byte ledger, is shown where somebody watches."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from pagoda.cli.console import note
from pagoda.config import EngineConfig

if TYPE_CHECKING:
    from pagoda.llm import LLM


def load(config: EngineConfig) -> LLM:
    """The model, ready. On a terminal stderr then says where its memory goes. Raises what `LLM` raises."""
    from pagoda.llm import LLM
    from pagoda.planning.ledger import format_ledger

    llm = LLM(**dataclasses.asdict(config))
    if sys.stderr.isatty():
        note(format_ledger(llm.plan) + "\n")
    return llm
