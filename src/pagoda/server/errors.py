"""Errors in the form that OpenAI's clients know: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from pagoda.errors import EngineClosedError, InvalidValueError, ModelFileError, PagodaError, QueueFullError


class HttpError(PagodaError):
    """An error with its HTTP status. param: the field it is about. retry_after: seconds, for 429 and 503."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after
        super().__init__(message)


def as_http_error(error: PagodaError) -> HttpError:
    """The HTTP error that an error on purpose becomes: 4xx where the client can mend it, 5xx where it cannot."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, InvalidValueError):
        return HttpError(400, str(error), param=error.field, code="invalid_value")
    if isinstance(error, QueueFullError):
        return HttpError(429, str(error), code="queue_full", retry_after=1)
    if isinstance(error, EngineClosedError):
        return HttpError(503, str(error), code="engine_unavailable", retry_after=5)
    if isinstance(error, ModelFileError):  # the model's own chat template cannot render this conversation
        return HttpError(400, str(error), param="messages", code="chat_template")
    return HttpError(500, str(error), code="internal_error")


def error_body(error: HttpError) -> dict[str, Any]:
    kinds = {404: "not_found_error", 429: "rate_limit_error"}
    default = "invalid_request_error" if error.status < 500 else "server_error"
    return {
        "error": {
            "message": str(error),
            "type": kinds.get(error.status, default),
            "param": error.param,
            "code": error.code,
        }
    }
