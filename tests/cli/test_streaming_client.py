"""The client of `bench calibrate`: whole answers only, and the first token's moment is not the head's."""

from __future__ import annotations

import asyncio

import pytest

from pagoda.cli.streaming_client import first_event, run

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
EVENTS = (b"data: {}\n\n", b"data: {}\n\ndata: [DONE]\n\n")


def exchanged(*pieces: bytes) -> list[list[float]]:
    """What the client notes of a server that answers with these pieces, one after the other."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def both() -> list[list[float]]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            return await run(host, port, [([1, 2], 2)] * 3, 2)
        finally:
            server.close()

    return asyncio.run(both())


def test_moments_come_in_order() -> None:
    noted = exchanged(HEAD, *EVENTS)
    assert len(noted) == 3
    assert all(sent < first <= end for sent, first, end in noted)


@pytest.mark.parametrize(
    ("pieces", "first"),
    [((HEAD, *EVENTS), 1), ((HEAD + EVENTS[0], EVENTS[1]), 0), ((HEAD[:9], HEAD[9:], EVENTS[0][:4], EVENTS[0][4:]), 3)],
)
def test_the_first_token_is_not_the_head(pieces: tuple[bytes, ...], first: int) -> None:
    assert first_event(list(pieces)) == first


@pytest.mark.parametrize("pieces", [(), (HEAD, EVENTS[0]), (b"HTTP/1.1 400 Bad Request\r\n\r\n{}", *EVENTS)])
def test_an_answer_that_is_not_whole_is_an_error(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(RuntimeError, match="the server answered"):
        exchanged(*pieces)
