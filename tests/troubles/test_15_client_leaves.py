"""Trouble 15: a client leaves and its generation goes on, or blocks the server.

Right: its blocks are free within one step, whether it streams, waits for a whole answer or waits its turn.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.app import served
from tests.server.gate import Aborts, AsgiClient, Gate

BODY: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 200, "ignore_eos": True}


@pytest.mark.parametrize("stream", [True, False])
def test_its_blocks_are_free_within_one_step(tiny_model: str, stream: bool) -> None:
    async def run() -> None:
        async with served(tiny_model, max_num_seqs=4) as (app, llm):
            gate, aborts = Gate(llm), Aborts(llm)
            stays = AsgiClient(app, "/v1/completions", {**BODY, "max_tokens": 40})
            await gate.holds()
            leaves = AsgiClient(app, "/v1/completions", {**BODY, "n": 8, "stream": stream})
            while llm.num_open < 2:
                await asyncio.sleep(0)
            for _ in range(4):
                gate.allow(1)
                await gate.holds()
            assert len(gate.steps[-1]) == 4  # three of its eight choices run, five wait
            leaves.leave()
            await aborts.seen()
            gate.allow(1)  # the step under way, the last that knows it
            await gate.holds()
            assert len(gate.steps[-1]) == 1
            stats = gate.stats
            assert (stats.num_running, stats.num_waiting) == (1, 0)
            assert stats.num_blocks - stats.num_free_blocks == 1
            gate.allow()
            await stays.finished()
            await leaves.finished()
            assert stays.status == 200
            assert llm.stats.num_free_blocks == llm.stats.num_blocks

    asyncio.run(run())
