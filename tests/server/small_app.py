"""A server without a model: a few routes of its own behind the real guard, for tests of how the server listens and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from pagoda.config import EngineConfig, ServerConfig
from pagoda.errors import PagodaError
from pagoda.llm import AsyncLLM
from pagoda.server.errors import as_http_error, error_body
from pagoda.server.json_body import JsonRoute
from pagoda.server.metrics import ServerMetrics
from pagoda.server.service import Service


@dataclass
class ModelStandIn:
    """What the guard and the server's loop see of a model."""

    config: EngineConfig = field(default_factory=EngineConfig)
    output_thread_id: int | None = None


def service_of(config: ServerConfig | None = None, **engine: Any) -> Service:
    model = cast("AsyncLLM", ModelStandIn(EngineConfig(**engine)))
    return Service(model, config or ServerConfig(), cast("ServerMetrics", None))


def small_app(service: Service) -> FastAPI:
    """POST /echo gives its JSON back; GET /stream?pieces=N streams N pieces, a tenth of a second each."""
    app = FastAPI()
    app.state.service = service
    routes = APIRouter(route_class=JsonRoute)

    @routes.post("/echo")
    async def echo(request: Request) -> dict[str, Any]:
        return cast("dict[str, Any]", await request.json())

    @app.get("/v1/models")
    async def models() -> dict[str, str]:
        return {"object": "list"}

    @app.get("/health")
    async def health() -> Response:
        return PlainTextResponse("well")

    @app.get("/ready")
    async def ready() -> Response:
        return PlainTextResponse("ready", 503 if service.draining else 200)

    @app.get("/stream")
    async def stream(pieces: int) -> StreamingResponse:
        async def count() -> AsyncIterator[str]:
            for number in range(pieces):
                yield f"{number}\n"
                await asyncio.sleep(0.1)

        return StreamingResponse(count())

    @app.exception_handler(PagodaError)
    async def refused(request: Request, error: PagodaError) -> JSONResponse:
        http_error = as_http_error(error)
        return JSONResponse(error_body(http_error), http_error.status)

    app.include_router(routes)
    return app
