"""/metrics: what Prometheus scrapes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from pagoda.server.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operation"])

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
    )
    async def metrics() -> Response:
        """The server's and the engine's metrics in Prometheus's text format."""
        return Response(service.metrics.render(), media_type=CONTENT_TYPE)

    return routes
