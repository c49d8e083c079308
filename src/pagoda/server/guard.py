"""The guard stands before every route: who may come in, under which name, and how much they may bring."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagoda.errors import shown
from pagoda.server.errors import HttpError, error_body
from pagoda.server.hosts import OwnNames
from pagoda.server.service import Service

T = TypeVar("T")

# Probes come by address, under any name; they change nothing and tell nothing but that a server is here.
PROBES = ("/health", "/ready")
# What monitoring may still see while the server is ending.
WATCHED = (*PROBES, "/metrics")
READING = ("GET", "HEAD", "OPTIONS")
# How much of a refused body is still read, and for how long: a client that writes before it reads would otherwise find
# the connection broken instead of the refusal.
DISCARD_BYTES = 64 << 20
DISCARD_SECONDS = 10.0
# How long a client may take to send a body.
BODY_SECONDS = 120.0


class Guard:
    """An ASGI application around another.

    Refuses, in OpenAI's form and before any route: a Host that is not one of this server's names, changes asked for by a
    page of another origin, bodies over `max_body_bytes`, and, once the service is draining, all but health, readiness and
    metrics. Adds no CORS header, so that pages of other origins read nothing. Refuses websockets.
    Raises `InvalidValueError` for an entry of `allowed_hosts` that is no name.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._names = OwnNames(service.config)
        self._max_body_bytes = service.engine_config.max_body_bytes
        self._num_running = 0
        self._idle = asyncio.Event()
        self._draining, self._ending = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003, "reason": "there are no websockets here"})
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def drained(self) -> None:
        """Wait until what ran when the service began draining has ended. Nobody can put that off by asking for more.

        What is not asked for yet, as its body is not whole, is refused at once; at the end no body is waited for at all.
        """
        self._draining.set()
        while self._num_running:
            self._idle.clear()
            await self._idle.wait()
        self._ending.set()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = _Incoming(scope, receive)
        try:
            self._check_sender(scope)
            self._check_draining(scope["path"])
            body = await self._body(scope, incoming)
            self._check_draining(scope["path"])
        except HttpError as error:
            await _refuse(error, incoming, send, self._ending)
        else:
            if body is not None:
                with self._running(scope["path"]):
                    await self._app(scope, _replayed(body, receive), send)

    @contextlib.contextmanager
    def _running(self, path: str) -> Iterator[None]:
        if path in WATCHED:
            yield
            return
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    def _check_draining(self, path: str) -> None:
        if self._service.draining and path not in WATCHED:
            raise _shutting_down()

    def _check_sender(self, scope: Scope) -> None:
        address = (scope.get("server") or ("",))[0]
        if scope["path"] not in PROBES:
            self._check_host(list(_values(scope, b"host")), address)
        if scope["method"] not in READING:
            for origin in _values(scope, b"origin"):
                self._check_origin(origin, address)

    def _check_host(self, hosts: list[str], address: str) -> None:
        if len(hosts) != 1:
            raise HttpError(400, f"Host: got {len(hosts)} such headers, must be exactly one", code="invalid_host")
        if not self._names.include(hosts[0], address):
            sentence = (
                f"Host: got {shown(hosts[0])}, must be a loopback name such as localhost, or one of --allowed-hosts"
            )
            raise HttpError(421, sentence, code="host_not_allowed")

    def _check_origin(self, origin: str, address: str) -> None:
        scheme, _, host = origin.partition("://")
        if scheme not in ("http", "https") or not self._names.include(host, address):
            sentence = (
                f"Origin: got {shown(origin)}, must be a page under a loopback name, or under one of --allowed-hosts"
            )
            raise HttpError(403, sentence, code="origin_not_allowed")

    async def _body(self, scope: Scope, incoming: _Incoming) -> bytes | None:
        """The whole body; None where the client left while sending it. Holds at most the limit and one piece more."""
        length = next(_values(scope, b"content-length"), None)
        if length is None and not any(_values(scope, b"transfer-encoding")):
            return b""
        # Twenty digits are more than any limit has.
        if length is not None and (not length.isdecimal() or int(length[:20]) > self._max_body_bytes):
            raise self._too_large(f"{length:.20} bytes")
        end = self._ending if scope["path"] in WATCHED else self._draining
        try:
            return await _before(end, self._pieces(incoming), BODY_SECONDS)
        except asyncio.TimeoutError:
            if end.is_set():
                raise _shutting_down() from None
            sentence = f"body: not whole after {BODY_SECONDS:.0f} s, must be sent within that time"
            raise HttpError(408, sentence, param="body", code="body_too_slow") from None

    async def _pieces(self, incoming: _Incoming) -> bytes | None:
        pieces: list[bytes] = []
        size = 0
        while not incoming.ended:
            piece = await incoming.piece()
            if piece is None:
                return None
            size += len(piece)
            if size > self._max_body_bytes:
                raise self._too_large(f"at least {size:,} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def _too_large(self, got: str) -> HttpError:
        sentence = f"body: got {got}, must be at most {self._max_body_bytes:,} bytes (--max-body-bytes)"
        return HttpError(413, sentence, param="body", code="body_too_large")


def guarded(app: ASGIApp, service: Service) -> Guard:
    """The application behind its guard."""
    return Guard(app, service)


class _Incoming:
    """What the client sends as the body. ended: there is no more of it, or the client left."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.ended = False
        # Such a client sends its body only once it is asked for.
        self.waits_to_be_asked = any(value.lower() == "100-continue" for value in _values(scope, b"expect"))

    async def piece(self) -> bytes | None:
        """The next piece; None where the client left."""
        message = await self._receive()
        self.waits_to_be_asked = False
        self.ended = not message.get("more_body", False)
        return message.get("body", b"") if message["type"] == "http.request" else None


def _values(scope: Scope, name: bytes) -> Iterator[str]:
    """The values of one header, each as it was sent."""
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` as the application calls it: the body first, then whatever the connection says next."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay


def _shutting_down() -> HttpError:
    sentence = "the server is shutting down: it finishes what runs and takes nothing new"
    return HttpError(503, sentence, code="shutting_down", retry_after=5)


async def _before(end: asyncio.Event, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What `work` returns or raises. Ends it and raises `asyncio.TimeoutError` after `seconds`, or once `end` is set."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(end.wait())
    try:
        await asyncio.wait((working, ending), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise asyncio.TimeoutError
    finally:
        working.cancel()
        ending.cancel()


async def _refuse(error: HttpError, incoming: _Incoming, send: Send, end: asyncio.Event) -> None:
    """Answer at once, then read what the client still sends, within bounds and until `end`, and close the connection."""
    body = json.dumps(error_body(error)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if not incoming.waits_to_be_asked:
        with contextlib.suppress(asyncio.TimeoutError):
            await _before(end, _discard(incoming), DISCARD_SECONDS)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(incoming: _Incoming) -> None:
    left = DISCARD_BYTES
    while not incoming.ended and left > 0:
        left -= len(await incoming.piece() or b"")
