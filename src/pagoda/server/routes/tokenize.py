"""/tokenize and /detokenize: what the model's own tokenizer and chat template make of a text, and of tokens.

Neither takes what is too long to be a prompt: otherwise one body could keep the server busy for seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from pagoda import checks
from pagoda.errors import InvalidValueError
from pagoda.server.generation import renaming
from pagoda.server.json_body import JsonRoute
from pagoda.server.openai.fields import Fields, accepted, honoured, json_schema, table
from pagoda.server.openai.request_schemas import json_body
from pagoda.server.openai.requests import HEAVY_BODY_BYTES, checked_messages
from pagoda.server.openai.routes import ERRORS, json_response
from pagoda.server.openai.schemas import DetokenizedText, Tokens
from pagoda.server.openai.tables import MESSAGE_FIELDS, MODEL, TOKEN_IDS
from pagoda.server.service import Service

MESSAGES = json_schema(MESSAGE_FIELDS, ["role", "content"])
TOKENIZE_FIELDS = table(
    MODEL,
    honoured("prompt", "A text. Either this or `messages`.", type="string"),
    honoured("messages", "A conversation, as in a chat request.", type="array", minItems=1, items=MESSAGES),
    honoured(
        "add_special_tokens",
        "With `prompt`: whether the tokens are added that the model wants around a text. Default true.",
        type="boolean",
    ),
)
DETOKENIZE_FIELDS = table(MODEL, honoured("tokens", "Token ids. Required.", **TOKEN_IDS))


def router(service: Service) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute, tags=["tokens"])
    llm = service.llm
    refusals: dict[int | str, dict[str, Any]] = {status: ERRORS[status] for status in (400, 404, 413, 415)}

    @routes.post(
        "/tokenize",
        responses=refusals,
        openapi_extra=json_body(json_schema(TOKENIZE_FIELDS, [])),
        response_model=Tokens,
    )
    async def tokenize(request: Request) -> Response:
        """A text's tokens, or those of the prompt that a conversation becomes."""
        given = await _given(request, TOKENIZE_FIELDS)
        return await _in_thread_if_long(request, lambda: _tokens(given))

    @routes.post(
        "/detokenize",
        responses=refusals,
        openapi_extra=json_body(json_schema(DETOKENIZE_FIELDS, ["tokens"])),
        response_model=DetokenizedText,
    )
    async def detokenize(request: Request) -> Response:
        """The text of tokens, control tokens included."""
        given = await _given(request, DETOKENIZE_FIELDS)
        return await _in_thread_if_long(request, lambda: _text(given))

    async def _given(request: Request, fields: Fields) -> dict[str, Any]:
        given = accepted(await request.json(), fields)
        service.check_model(checks.text("model", given["model"]) if "model" in given else None)
        return given

    def _tokens(given: dict[str, Any]) -> dict[str, Any]:
        tokens = _token_ids(given)
        return {"tokens": tokens, "count": len(tokens), "max_model_len": llm.plan.max_model_len}

    def _token_ids(given: dict[str, Any]) -> list[int]:
        if ("prompt" in given) == ("messages" in given):
            raise InvalidValueError("prompt", given.get("prompt"), "given, or messages, but not both")
        if "prompt" in given:
            added = checks.boolean("add_special_tokens", given.get("add_special_tokens", True))
            text = checks.text("prompt", given["prompt"])
            llm.check_size(text)
            return llm.tokenizer.encode(text, add_special_tokens=added)
        if "add_special_tokens" in given:
            limit = "left out with messages: the chat template says where special tokens go"
            raise InvalidValueError("add_special_tokens", given["add_special_tokens"], limit)
        messages = checked_messages(given["messages"])
        with renaming({"prompt": "messages"}):
            llm.check_size(messages)
            return llm.chat_token_ids(messages, llm.check_size)

    def _text(given: dict[str, Any]) -> dict[str, Any]:
        tokens, limit = given.get("tokens"), llm.tokenizer.vocab_size - 1
        if not isinstance(tokens, list):
            raise InvalidValueError("tokens", tokens, "a list of token ids")
        if tokens:
            checks.integer("tokens[0]", tokens[0], 0, limit)  # so that it is not taken for a conversation
        with renaming({"prompt": "tokens"}):
            llm.check_size(tokens)
        for index, token_id in enumerate(tokens):
            checks.integer(f"tokens[{index}]", token_id, 0, limit)
        return {"prompt": llm.tokenizer.decode(tokens, skip_special_tokens=False)}

    return routes


async def _in_thread_if_long(request: Request, work: Callable[[], dict[str, Any]]) -> Response:
    if len(await request.body()) > HEAVY_BODY_BYTES:
        return await asyncio.to_thread(lambda: json_response(work()))
    return json_response(work())
