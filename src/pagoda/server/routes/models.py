"""/v1/models: the one model that is served."""

from __future__ import annotations

from fastapi import APIRouter

from pagoda.server.openai.schemas import ErrorBody, ModelCard, ModelList
from pagoda.server.service import Service


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["openai"], prefix="/v1/models")

    def card() -> ModelCard:
        return ModelCard(id=service.model_name, created=service.created, max_model_len=service.llm.plan.max_model_len)

    @routes.head("", include_in_schema=False)
    @routes.get("")
    async def models() -> ModelList:
        """The models there are."""
        return ModelList(data=[card()])

    @routes.head("/{model:path}", include_in_schema=False)
    @routes.get("/{model:path}", responses={404: {"model": ErrorBody, "description": "There is no such model."}})
    async def model(model: str) -> ModelCard:
        """One model by its name, which may have slashes."""
        service.check_model(model)
        return card()

    return routes
