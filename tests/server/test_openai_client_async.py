"""The asynchronous `openai` client: 32 streams at once, each equal to itself alone."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI

from tests.server.process import RunningServer

NUM_STREAMS = 32


def _asked(number: int) -> dict[str, Any]:
    """Prompts of 6 to 130 tokens, outputs of 4 to 35: they come and go while others run."""
    return {
        "prompt": f"no. {number:02}" + " word" * (number * 7 % 26),
        "max_tokens": 4 + number,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }


async def _stream(client: AsyncOpenAI, model: str, number: int) -> str:
    stream = await client.completions.create(model=model, stream=True, **_asked(number))
    return "".join([chunk.choices[0].text async for chunk in stream])


def test_32_streams_at_once_are_each_what_they_are_alone(server: RunningServer) -> None:
    async def run() -> tuple[list[str], list[str], list[str]]:
        async with AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            model = server.model
            alone = [await _stream(client, model, number) for number in range(NUM_STREAMS)]
            together = await asyncio.gather(*(_stream(client, model, number) for number in range(NUM_STREAMS)))
            answers = await asyncio.gather(
                *(client.completions.create(model=model, **_asked(number)) for number in range(NUM_STREAMS))
            )
            return alone, list(together), [answer.choices[0].text for answer in answers]

    alone, together, whole = asyncio.run(run())
    assert together == alone
    assert whole == alone
    assert len(set(alone)) > NUM_STREAMS // 2


def test_chats_and_completions_share_the_batch(server: RunningServer) -> None:
    async def run() -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            model = server.model

            async def chat(content: str) -> str | None:
                answer = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": content}], temperature=0, max_tokens=20
                )
                return answer.choices[0].message.content

            alone = [await chat(f"chat {number}") for number in range(4)], await _stream(client, model, 20)
            chats = asyncio.gather(*(chat(f"chat {number}") for number in range(4)))
            assert (await chats, await _stream(client, model, 20)) == alone

    asyncio.run(run())


def test_a_stream_that_is_closed_early_leaves_the_client_usable(server: RunningServer) -> None:
    async def run() -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            model = server.model
            expected = await _stream(client, model, 3)
            stream = await client.completions.create(model=model, stream=True, **{**_asked(0), "max_tokens": 200})
            async for _ in stream:
                break
            await stream.close()
            assert await _stream(client, model, 3) == expected

    asyncio.run(run())
