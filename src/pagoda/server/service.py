"""Service: what the routes share. One per application; there is no global state."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pagoda.config import EngineConfig, ServerConfig
from pagoda.llm import AsyncLLM
from pagoda.server.errors import HttpError
from pagoda.server.metrics import ServerMetrics


@dataclass(slots=True)
class Service:
    """llm: the model. draining: SIGTERM came; what runs is finished, nothing new is taken."""

    llm: AsyncLLM
    config: ServerConfig
    metrics: ServerMetrics
    created: int = field(default_factory=lambda: int(time.time()))
    draining: bool = False

    @property
    def engine_config(self) -> EngineConfig:
        return self.llm.config

    @property
    def model_name(self) -> str:
        """The model's name in the API."""
        return self.config.served_model_name or self.llm.config.model

    def check_model(self, name: str | None) -> None:
        """Raises 404 for a model that is not served here; None means the one that is."""
        if name is not None and name != self.model_name:
            message = f"the model {name!r:.200} does not exist here; this server has {self.model_name!r}"
            raise HttpError(404, message, param="model", code="model_not_found")
