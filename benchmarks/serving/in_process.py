"""The same load on the engine without a server, in a process of its own: one JSON line a load, as asked for on stdin.

python in_process.py MODEL ENGINE_CONFIG_JSON; then lines {shape, seed, vocabulary}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from pagoda import SamplingParams
from pagoda.llm import AsyncLLM
from serving.cpu import cpu_seconds
from serving.load import Request, Shape, Timeline, requests
from serving.watch import Watch


async def run(llm: AsyncLLM, planned: list[Request], concurrency: int, on_data: Callable[[], None]) -> list[Timeline]:
    places = asyncio.Semaphore(concurrency)

    async def one(request: Request) -> Timeline:
        async with places:
            sampling = SamplingParams(max_tokens=request.max_tokens, temperature=0.0, ignore_eos=True)
            sent = time.perf_counter()
            handle = llm.submit(request.prompt_token_ids, sampling)
            arrivals = []
            async for _ in handle:
                arrivals.append(time.perf_counter())
                on_data()
            output = await handle.result()
            if output.error is not None:
                raise output.error
            return Timeline(
                len(request.prompt_token_ids), output.usage.completion_tokens, sent, arrivals, time.perf_counter()
            )

    return list(await asyncio.gather(*map(one, planned)))


def main() -> None:
    model, config = sys.argv[1], json.loads(sys.argv[2])
    llm = AsyncLLM(model, **config)
    try:
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            shape = Shape(**asked["shape"])
            planned = requests(shape, asked["seed"], asked["vocabulary"])
            before = cpu_seconds(os.getpid())
            with Watch("In process", shape.expected_output_tokens) as on_data:
                timelines = asyncio.run(run(llm, planned, shape.concurrency, on_data))
            cpu = cpu_seconds(os.getpid()) - before
            print(json.dumps({"timelines": [asdict(line) for line in timelines], "cpu": asdict(cpu)}), flush=True)
    finally:
        llm.close()


if __name__ == "__main__":
    main()
