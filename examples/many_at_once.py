"""Many requests at once with asyncio: they share the batch, each with its own parameters and seed.

Run: python examples/many_at_once.py [MODEL]
"""

import asyncio
import sys

from pagoda import AsyncLLM, SamplingParams


async def ask(llm: AsyncLLM, seed: int) -> str:
    output = await llm.generate("My favourite city is", SamplingParams(temperature=0.8, seed=seed, max_tokens=12))
    return output.outputs[0].text


async def main(model: str = "smollm2") -> None:
    async with AsyncLLM(model) as llm:
        answers = await asyncio.gather(*(ask(llm, seed) for seed in range(8)))
    for seed, answer in enumerate(answers):
        print(f"seed {seed}: {answer!r}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
