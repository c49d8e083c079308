"""Pagoda, an LLM inference engine. The public names below are imported when first used; none of them needs torch on the CPU."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pagoda.version import __version__

if TYPE_CHECKING:
    from pagoda.config import EngineConfig
    from pagoda.engine.outputs import CompletionDelta, CompletionOutput, RequestOutput
    from pagoda.errors import PagodaError
    from pagoda.llm import LLM, AsyncLLM
    from pagoda.sampling_params import SamplingParams

_HOMES = {
    "LLM": "pagoda.llm",
    "AsyncLLM": "pagoda.llm",
    "CompletionDelta": "pagoda.engine.outputs",
    "CompletionOutput": "pagoda.engine.outputs",
    "EngineConfig": "pagoda.config",
    "PagodaError": "pagoda.errors",
    "RequestOutput": "pagoda.engine.outputs",
    "SamplingParams": "pagoda.sampling_params",
}
__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionDelta",
    "CompletionOutput",
    "EngineConfig",
    "PagodaError",
    "RequestOutput",
    "SamplingParams",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Importing pagoda.core must cost milliseconds, so nothing heavier is imported before it is asked for.
    if name not in _HOMES:
        raise AttributeError(f"module 'pagoda' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
