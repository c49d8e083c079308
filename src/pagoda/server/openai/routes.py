"""/v1/completions and /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from pagoda.engine.outputs import RequestOutput
from pagoda.server.connection import ClientLeftError, NoResponse, while_connected
from pagoda.server.generation import Generation, Generations
from pagoda.server.json_body import JsonRoute
from pagoda.server.openai.answers import Served
from pagoda.server.openai.chat_answers import ChatChunks, chat_body
from pagoda.server.openai.completion_answers import CompletionChunks, completion_body
from pagoda.server.openai.request_schemas import chat_schema, completion_schema, json_body
from pagoda.server.openai.requests import chat_request, completion_request
from pagoda.server.openai.schemas import ChatAnswer, Completion, ErrorBody
from pagoda.server.service import Service
from pagoda.server.sse import EventStream, json_bytes

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in {
        400: "A field that is refused; `param` names it.",
        404: "Another model than the one served.",
        413: "The body is too large.",
        415: "Not application/json.",
        429: "Too many requests are open; see Retry-After.",
        500: "The request failed.",
        503: "The server is shutting down, or the engine has failed.",
    }.items()
}


def router(service: Service) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute, tags=["openai"], prefix="/v1")
    generations = Generations(service)
    tokenizer, served = service.llm.tokenizer, Served(service.model_name, service.llm.fingerprint)

    @routes.post(
        "/completions",
        response_class=Response,
        responses={200: _answer(Completion, "Completion"), **ERRORS},
        openapi_extra=json_body(completion_schema(service.engine_config)),
    )
    async def completions(request: Request) -> Response:
        """Continue text."""
        body = await request.json()
        call, shape = completion_request(body, len(await request.body()), service.engine_config.max_prompts)
        service.check_model(body.get("model"))
        generation = await generations.start(call)
        if shape.stream:
            return EventStream(generation, CompletionChunks(served, tokenizer, shape, generation))
        outputs = await _outputs(request, generation)
        if outputs is None:
            return NoResponse()
        return json_response(completion_body(served, tokenizer, shape, generation, outputs))

    @routes.post(
        "/chat/completions",
        response_class=Response,
        responses={200: _answer(ChatAnswer, "ChatChunk"), **ERRORS},
        openapi_extra=json_body(chat_schema(service.engine_config)),
    )
    async def chat_completions(request: Request) -> Response:
        """The next message of a conversation."""
        body = await request.json()
        call, shape = chat_request(body, len(await request.body()))
        service.check_model(body.get("model"))
        generation = await generations.start(call)
        if shape.stream:
            return EventStream(generation, ChatChunks(served, shape, generation))
        outputs = await _outputs(request, generation)
        if outputs is None:
            return NoResponse()
        return json_response(chat_body(served, shape, generation, outputs[0]))

    return routes


def json_response(body: Mapping[str, Any]) -> Response:
    return Response(json_bytes(body), media_type="application/json")


async def _outputs(request: Request, generation: Generation) -> Sequence[RequestOutput] | None:
    """What was generated; None where the client left, in which case nothing is left running."""
    async with generation:
        try:
            return await while_connected(request.receive, generation.finished())
        except ClientLeftError:
            return None


def _answer(model: type, chunk: str) -> dict[str, Any]:
    data = f"A chunk as JSON ({chunk}), or an error in its usual form; after the last one `[DONE]`."
    # As OpenAPI has it for event streams, the schema is that of one event.
    event = {
        "type": "object",
        "properties": {"data": {"type": "string", "description": data}},
        "required": ["data"],
    }
    return {
        "model": model,
        "description": "The answer, or with `stream` its events.",
        "content": {"text/event-stream": {"schema": event}},
    }
