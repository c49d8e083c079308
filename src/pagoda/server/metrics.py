"""Prometheus metrics of the server and its engine."""

from __future__ import annotations

from pagoda.llm import AsyncLLM


class RequestTimer:
    """One request's times. Call from the event loop."""

    def tokens(self, count: int) -> None:
        """`count` tokens of one choice arrived just now."""

    def finished(self, reason: str) -> None:
        """A choice ended: "stop", "length", "abort" or "error"."""


class ServerMetrics:
    """A registry of its own; `render` is the text that Prometheus scrapes."""

    def __init__(self, llm: AsyncLLM, model_name: str) -> None:
        self._llm, self._model_name = llm, model_name

    def started(self, prompt_tokens: int) -> RequestTimer:
        """A request was admitted."""
        return RequestTimer()

    def render(self) -> bytes:
        return b""
