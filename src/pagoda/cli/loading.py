"""Loading a model for a command: its memory, as a byte ledger, is shown where somebody watches."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, TypeVar

from pagoda.cli.console import note
from pagoda.config import EngineConfig

if TYPE_CHECKING:
    from pagoda.engine.build import Engine
    from pagoda.llm import LLM, AsyncLLM
    from pagoda.planning.ledger import HeldBytes, MemoryPlan


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


def load_engine(config: EngineConfig) -> Engine:
    """The engine beneath both, for experiments with its parts."""
    from pagoda.engine.build import Engine
    from pagoda.progress import TerminalProgress

    with TerminalProgress() as bars:
        engine = Engine(config, bars, _show_plan)
    _show_held(engine.plan, engine.held)
    return engine


def _load(kind: type[Model], config: EngineConfig) -> Model:
    model = kind(on_plan=_show_plan, **dataclasses.asdict(config))
    _show_held(model.plan, model.held)
    return model


def _show_plan(plan: MemoryPlan) -> None:
    if sys.stderr.isatty():
        from pagoda.planning.ledger import format_ledger

        note(format_ledger(plan))


def _show_held(plan: MemoryPlan, held: HeldBytes) -> None:
    if sys.stderr.isatty():
        from pagoda.planning.ledger import format_held

        note(f"Loaded: {format_held(plan, held)}.\n")
