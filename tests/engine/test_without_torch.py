"""Serving on the CPU never loads torch: not to generate, not to serve."""

from __future__ import annotations

import subprocess
import sys

import pytest

GENERATING = """
from pagoda import LLM, SamplingParams

with LLM(MODEL, num_kv_blocks=32, threads=1) as llm:
    for sampling in (
        SamplingParams(temperature=0, max_tokens=4),
        SamplingParams(temperature=0.9, seed=1, top_p=0.9, frequency_penalty=0.5, logprobs=2, prompt_logprobs=2, max_tokens=4),
    ):
        assert llm.generate("Hello", sampling)[0].outputs[0].token_ids
    assert llm.chat([{"role": "user", "content": "Hello"}])[0].error is None
"""
SERVING = """
import asyncio, httpx
from pagoda.config import ServerConfig
from pagoda.llm import AsyncLLM
from pagoda.server.app import create_app
from pagoda.server.metrics import ServerMetrics
from pagoda.server.service import Service

async def ask():
    async with AsyncLLM(MODEL, num_kv_blocks=32, threads=1) as llm:
        app = create_app(Service(llm, ServerConfig(served_model_name="tiny"), ServerMetrics(llm, "tiny")))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "logprobs": True}
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert (await client.get("/metrics")).status_code == 200

asyncio.run(ask())
"""
TOLD = """
import sys
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "triton"}))
"""


@pytest.mark.parametrize("program", [GENERATING, SERVING], ids=["generating", "serving"])
def test_torch_is_not_loaded(tiny_model: str, program: str) -> None:
    code = f"MODEL = {tiny_model!r}\n{program}\n{TOLD}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr
