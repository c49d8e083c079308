"""Loading a model for a command: its memory, as a byte ledger, is shown where somebody watches."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, TypeVar

from pagoda.cli.console import note
from pagoda.config import EngineConfig

if TYPE_CHECKING:
    from pagoda.llm import LLM, AsyncLLM
    from pagoda.planning.ledger import MemoryPlan


Model = TypeVar("Model", "LLM", "AsyncLLM")


def load(config: EngineConfig) -> LLM:
    """The model, ready, for ordinary code. On a terminal stderr first says where its memory will go, and then where it went.

    Raises what `LLM` raises.
    """
    from pagoda.llm import LLM

    return _load(LLM, config)


def load_async(config: EngineConfig) -> AsyncLLM:
    """The same for asyncio code."""
    from pagoda.llm import AsyncLLM

    return _load(AsyncLLM, config)


def _load(kind: type[Model], config: EngineConfig) -> Model:
    from pagoda.planning.ledger import format_held, format_ledger

    watched = sys.stderr.isatty()

    def show(plan: MemoryPlan) -> None:
        if watched:
            note(format_ledger(plan))

    model = kind(on_plan=show, **dataclasses.asdict(config))
    if watched:
        note(f"Loaded: {format_held(model.plan, model.held)}.\n")
    return model
