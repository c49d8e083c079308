"""The application on a real engine, in this process: for tests that hold the engine or the connection in their hands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pagoda.config import ServerConfig
from pagoda.llm import AsyncLLM
from pagoda.server.app import create_app
from pagoda.server.guard import guarded
from pagoda.server.metrics import ServerMetrics
from pagoda.server.service import Service
from tests.server.gate import Application, let_go


@asynccontextmanager
async def served(model: str, **config: Any) -> AsyncIterator[tuple[Application, AsyncLLM]]:
    """The whole application, guard and all, and its model, which answers to the name `tiny`."""
    async with AsyncLLM(model, threads=1, num_kv_blocks=64, **config) as llm:
        service = Service(llm, ServerConfig(served_model_name="tiny"), ServerMetrics(llm, "tiny"))
        try:
            yield guarded(create_app(service), service), llm
        finally:
            let_go(llm)
