"""The GPU's runner step by step, over a tiny LLaMA, against the torch runner's."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.runner.cuda_tiny import cuda_runner
from tests.runner.steps import request, row, step


def test_a_step_is_submitted_before_the_token_that_it_reads_is_known(tiny_model: str) -> None:
    texts = []
    for depth in (0, 1):
        runner = cuda_runner(tiny_model)
        tokens = []
        runner.submit(step(0, [row("a", 0, 3, [1])], [request("a", [1, 2, 3])]))
        for number in range(1, 6):
            if depth == 0:
                tokens.append(runner.collect().rows[0].token_id)
            runner.submit(step(number, [row("a", number + 2, 1, [number + 1] if (number + 2) % 4 == 0 else [])]))
            if depth == 1:
                tokens.append(runner.collect().rows[0].token_id)
        texts.append([*tokens, runner.collect().rows[0].token_id])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 2
