"""AsyncLLM: the same results under asyncio, cancellation, a full inbox."""

from __future__ import annotations

import asyncio

import pytest

from pagoda import LLM, AsyncLLM, SamplingParams
from pagoda.errors import InvalidValueError, QueueFullError

GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
PROMPTS = [f"prompt {number}" for number in range(12)]


@pytest.fixture(scope="module")
def expected(tiny_model: str) -> list[str]:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        return [output.outputs[0].text for output in llm.generate(PROMPTS, GREEDY)]


def test_gathered_requests_and_streams_give_what_llm_gives(tiny_model: str, expected: list[str]) -> None:
    async def run() -> tuple[list[str], list[str]]:
        async with AsyncLLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
            outputs = await asyncio.gather(*(llm.generate(prompt, GREEDY) for prompt in PROMPTS))

            async def joined(prompt: str) -> str:
                return "".join([delta.text async for delta in llm.stream(prompt, GREEDY)])

            streams = await asyncio.gather(*(joined(prompt) for prompt in PROMPTS))
            return [output.outputs[0].text for output in outputs], list(streams)

    generated, streamed = asyncio.run(run())
    assert generated == expected
    assert streamed == expected


def test_a_cancelled_task_ends_its_request_and_no_other(tiny_model: str, expected: list[str]) -> None:
    async def run() -> tuple[str, int]:
        async with AsyncLLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
            doomed = asyncio.create_task(llm.generate("doomed", LONG))
            other = asyncio.create_task(llm.generate(PROMPTS[0], GREEDY))
            await asyncio.sleep(0)
            doomed.cancel()
            with pytest.raises(asyncio.CancelledError):
                await doomed
            text = (await other).outputs[0].text
            await llm.generate(PROMPTS[1], GREEDY)  # takes more steps than the abort needs
            return text, llm._engine.client.num_open

    text, num_open = asyncio.run(run())
    assert text == expected[0]
    assert num_open == 0


def test_a_full_inbox_refuses_with_the_figures(tiny_model: str) -> None:
    async def run() -> None:
        async with AsyncLLM(tiny_model, threads=1, num_kv_blocks=64, max_num_seqs=1, max_waiting=1) as llm:
            handles = [llm.submit("Hello", LONG) for _ in range(2)]
            with pytest.raises(QueueFullError, match="2 choices are open, the limit is 2"):
                llm.submit("Hello", LONG)
            for handle in handles:
                handle.cancel()

    asyncio.run(run())


def test_a_refused_prompt_raises_in_the_caller(tiny_model: str) -> None:
    async def run() -> None:
        async with AsyncLLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
            with pytest.raises(InvalidValueError, match="prompt"):
                await llm.generate("", GREEDY)

    asyncio.run(run())
