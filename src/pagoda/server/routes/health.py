"""/health and /ready: two questions. Whether the process is worth keeping, and whether to send it requests just now.

A supervisor restarts what is not healthy, so being busy, full or about to stop must not look ill; a load balancer
routes around what is not ready.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from pagoda.llm import AsyncLLM
from pagoda.server.service import Service

# A step's own time is bounded by its token budget: 512 tokens of a 7B model in float32 take about a minute on two cores,
# some more with busy neighbours. An engine that is at one step for longer than this will not come back.
STALLED_AFTER_SECONDS = 300.0

# One step may fail for its requests' own reasons; so many in a row do not.
FAILED_STEPS = 3


class Health(BaseModel):
    """How the engine is. reason: why it is not well, or not ready."""

    status: Literal["ok", "unavailable"]
    reason: str | None = None
    requests_running: int = Field(description="Sequences in the batch, as of the engine's last turn.")
    requests_waiting: int = Field(description="Sequences that wait for a place in it.")
    stalled_seconds: float = Field(description="Age of the step under way; 0 when idle.")


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operation"])

    # Coroutines, so that they answer in the event loop: a liveness probe must not wait for a free worker thread.
    @routes.head("/health", include_in_schema=False)
    @routes.get("/health", responses={503: {"model": Health, "description": "The engine is dead or frozen."}})
    async def health(response: Response) -> Health:
        """Whether the engine is alive. Busy is alive, and so is one that is stopping."""
        return _answer(service, illness(service.llm), response)

    @routes.head("/ready", include_in_schema=False)
    @routes.get("/ready", responses={503: {"model": Health, "description": "No request would be taken now."}})
    async def ready(response: Response) -> Health:
        """Whether a request would be taken now."""
        return _answer(service, unreadiness(service), response)

    return routes


def illness(llm: AsyncLLM) -> str | None:
    """Why the engine will not generate again, if that is so."""
    if llm.failure is not None:
        return llm.failure
    failed = llm.stats.failed_steps
    if failed >= FAILED_STEPS:
        return f"the last {failed:,} steps failed; the log has the cause"
    stalled = llm.stats.stalled_seconds()
    if stalled > STALLED_AFTER_SECONDS:
        return f"the engine has been at one step for {stalled:.0f} s (at most {STALLED_AFTER_SECONDS:.0f})"
    return None


def unreadiness(service: Service) -> str | None:
    """Why no request should come here now, if that is so."""
    if service.draining:
        return "the server is stopping"
    if service.llm.num_open >= service.llm.max_open:
        return f"{service.llm.num_open:,} choices are open, as many as may run and wait"
    return illness(service.llm)


def _answer(service: Service, reason: str | None, response: Response) -> Health:
    stats = service.llm.stats
    response.headers["Cache-Control"] = "no-store"
    if reason is not None:
        response.status_code = 503
    return Health(
        status="ok" if reason is None else "unavailable",
        reason=reason,
        requests_running=stats.num_running,
        requests_waiting=stats.num_waiting,
        stalled_seconds=round(stats.stalled_seconds(), 3),
    )
