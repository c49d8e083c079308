"""Work for a client that may leave at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Result = TypeVar("Result")


class ClientLeftError(Exception):
    """Nobody waits for the answer any more."""


class NoResponse(Response):
    """What is sent to a client that has left."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """What the work returns or raises. When the client leaves first, the work is cancelled and `ClientLeftError` raised.

    receive: the connection's, whose body has been read.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeftError
    finally:
        for task in (working, watching):
            task.cancel()
        # Their ends are waited for, so that what they hold is released before this returns.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
