"""The engine's CUDA graphs, which its public names do not tell of: which there are, how long one takes, none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpu.clock import median_seconds
from pagoda import LLM

MOST_ROUNDS = 8


def wait_for(llm: LLM, rows: int, generate: Callable[[], object]) -> bool:
    """Generate until decode steps of so many rows have their graph, which is captured while the engine is at work. Returns
    whether they have."""
    graphs = _of(llm)
    for _ in range(MOST_ROUNDS):
        generate()
        if any(captured >= rows for captured in graphs.captured) or graphs.problem is not None:
            break
    return any(captured >= rows for captured in graphs.captured)


def state(llm: LLM) -> dict[str, Any]:
    return {"captured": _of(llm).captured, "problem": _of(llm).problem}


def replay_seconds(llm: LLM, rows: int, repeats: int) -> float | None:
    """Of a decode step's forward pass alone, as it was last: the engine must be idle. None where there is no graph of it."""
    graphs = _of(llm)._graphs
    fitting = [captured for captured in sorted(graphs) if captured >= rows]
    if not fitting or not torch.cuda.is_available():
        return None
    return median_seconds(graphs[fitting[0]].replay, repeats)


def switch_off(llm: LLM) -> None:
    """From now on steps are launched kernel by kernel. The engine must be idle."""
    _of(llm).close()
    _of(llm).problem = "switched off"


def _of(llm: LLM) -> Any:
    return llm._engine.runner.graphs
