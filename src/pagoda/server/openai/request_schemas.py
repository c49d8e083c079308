"""The shapes of requests for the OpenAPI schema, made from the tables of fields and the operator's limits."""

from __future__ import annotations

from typing import Any

from pagoda.config import EngineConfig
from pagoda.server.openai.fields import json_schema
from pagoda.server.openai.tables import CHAT_FIELDS, COMPLETION_FIELDS, MESSAGE_FIELDS, STREAM_OPTIONS


def completion_schema(config: EngineConfig) -> dict[str, Any]:
    schema = _with_limits(json_schema(COMPLETION_FIELDS, ["prompt"]), config)
    for kind in schema["properties"]["prompt"]["anyOf"]:
        if kind.get("items", {}).get("type") in ("string", "array"):
            kind["maxItems"] = config.max_prompts
    return schema


def chat_schema(config: EngineConfig) -> dict[str, Any]:
    schema = _with_limits(json_schema(CHAT_FIELDS, ["messages"]), config)
    schema["properties"]["messages"]["items"] = json_schema(MESSAGE_FIELDS, ["role", "content"])
    return schema


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """A route's `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _with_limits(schema: dict[str, Any], config: EngineConfig) -> dict[str, Any]:
    properties = schema["properties"]
    properties["n"]["anyOf"][0]["maximum"] = config.max_n
    properties["stop"]["anyOf"][0]["anyOf"][1]["maxItems"] = config.max_stop_strings
    if config.policy != "priority":
        properties["priority"]["anyOf"][0] = {"const": 0}
    properties["stream_options"]["anyOf"][0] |= json_schema(STREAM_OPTIONS, [])
    return schema
