"""The application: routes, and every error in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from pagoda.errors import InvalidValueError, PagodaError
from pagoda.server.errors import HttpError, as_http_error, error_body
from pagoda.server.openai import routes as openai
from pagoda.server.routes import health, metrics, models, tokenize
from pagoda.server.service import Service
from pagoda.server.sse import json_bytes
from pagoda.version import __version__


def create_app(service: Service) -> FastAPI:
    """The routes over one service; `guard.guarded` goes around it. The schema is at /openapi.json.

    There are no documentation pages: they would load scripts from a CDN.
    """
    app = FastAPI(
        title="Pagoda",
        version=__version__,
        description="LLM inference behind OpenAI's API.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirection has no body, and a client may not send a POST again
    )
    app.state.service = service
    for part in (openai, models, tokenize, health, metrics):
        app.include_router(part.router(service))
    app.add_exception_handler(PagodaError, _on_purpose)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _defect)
    return app


def error_response(error: HttpError, headers: Mapping[str, str] | None = None) -> Response:
    sent = dict(headers or {})
    if error.retry_after is not None:
        sent["retry-after"] = str(error.retry_after)
    return Response(json_bytes(error_body(error)), error.status, sent, "application/json")


async def _on_purpose(request: Request, error: Exception) -> Response:
    if not isinstance(error, PagodaError):
        raise error
    return error_response(as_http_error(error))


async def _invalid(request: Request, error: Exception) -> Response:
    """What FastAPI itself refuses in a path or query."""
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    limit = str(first["msg"]).removeprefix("Input should be ")
    return error_response(as_http_error(InvalidValueError(field, first.get("input"), limit)))


async def _no_route(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path[:200]
    sentences = {
        404: f"{request.method} {path}: there is no such path",
        405: f"{request.method} {path}: this path does not take {request.method}",
    }
    sentence = sentences.get(error.status_code, f"{request.method} {path}: {error.detail}")
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    return error_response(HttpError(error.status_code, sentence, code=code), error.headers)


async def _defect(request: Request, error: Exception) -> Response:
    """A bug: its trace is in the log, not in the answer."""
    return error_response(HttpError(500, "the server failed at this request", code="internal_error"))
