"""The JSON body of a request: read strictly, so that what two programs could understand differently is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any, NoReturn

import numpy as np
from fastapi import Request, Response
from fastapi.routing import APIRoute

from pagoda.errors import shown
from pagoda.server.errors import HttpError

# Every integer that the API knows has at most 20 digits; converting a number of millions would take minutes.
MAX_DIGITS = 40
QUOTE = ord('"')
# What a byte outside of strings adds to the nesting.
NESTING = np.zeros(256, np.int8)
NESTING[list(b"[{")] = 1
NESTING[list(b"]}")] = -1


class JsonRoute(APIRoute):
    """A route that takes a JSON object. `await request.json()` is that object; what is none never reaches the handler.

    Raises `HttpError`: 415 for another content type, 400 for what `parse_object` refuses.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            check_content_type(request)
            body = await request.body()
            value = parse_object(body, request.app.state.service.engine_config.max_json_depth)
            return await handle(_ParsedRequest(request, body, value))

        return handle_json


class _ParsedRequest(Request):
    """A request whose body was read and parsed already."""

    def __init__(self, request: Request, body: bytes, value: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._read, self._value = body, value

    async def body(self) -> bytes:
        return self._read

    async def json(self) -> dict[str, Any]:
        return self._value


def check_content_type(request: Request) -> None:
    """Raises `HttpError` 415 unless the body is said to be plain JSON in UTF-8.

    A web page can send any other type to any server without asking it first, hence the refusal.
    """
    given = request.headers.getlist("content-type")
    message = Message()
    message["content-type"] = given[0] if given else ""
    charset = message.get_param("charset", "utf-8")
    if len(given) != 1 or not _is_json(given[0]) or str(charset).lower() not in ("utf-8", "utf8"):
        sentence = (
            f"Content-Type: got {shown(', '.join(given)) if given else 'none'}, must be application/json, in UTF-8"
        )
        raise HttpError(415, sentence, code="unsupported_media_type")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        sentence = f"Content-Encoding: got {shown(encoding)}, must be identity: compressed bodies are not read"
        raise HttpError(415, sentence, code="unsupported_media_type")


def parse_object(body: bytes, max_depth: int) -> dict[str, Any]:
    """The object that a body says. Costs time and memory in proportion to the body's size, whatever is in it.

    Raises `HttpError` 400: not UTF-8, not JSON (NaN and Infinity are not), no object, nested deeper than `max_depth`, a key
    twice in one object, a number too long or too large. Lone surrogates in strings are left to the fields' own checks.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _refusal(f"must be UTF-8; byte {body[error.start]:#04x} at offset {error.start:,} is not") from None
    depth = nesting(body)
    if depth > max_depth:
        raise _refusal(f"nested {depth:,} deep, must be at most {max_depth} deep (max_json_depth)")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise _refusal(f"must be a JSON object; {error}") from None
    if not isinstance(value, dict):
        raise _refusal(f"must be a JSON object, got {shown(value)}")
    return value


def nesting(body: bytes) -> int:
    """How deeply arrays and objects are nested in a JSON text, up to where it stops being one. No recursion."""
    # Without escaped backslashes and then without escaped quotes, every quote left begins or ends a string.
    characters = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = np.cumsum(characters == QUOTE, dtype=np.int32) % 2 == 0
    return int(np.cumsum(NESTING[characters] * outside, dtype=np.int32).max(initial=0))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _refusal(f"the key {shown(key)} is given twice, must be given once")
            seen.add(key)
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _refusal(f"a number of {len(digits):,} digits, must have at most {MAX_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refusal(f"the number {shown(digits)}, must be one that a 64-bit float can hold")
    return value


def _constant(name: str) -> NoReturn:
    raise _refusal(f"{name} is no JSON, must be a finite number or null")


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _refusal(what: str) -> HttpError:
    return HttpError(400, f"body: {what}", code="invalid_json")
