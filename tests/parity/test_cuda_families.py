"""Every family in the GPU's path computes what `transformers` computes, in float32, on tiny seeded models."""

from __future__ import annotations

import numpy as np

from tests.parity.conftest import LENGTHS, Tiny
from tests.parity.cuda import CudaSteps
from tests.parity.test_families import check_logits

# Of LENGTHS: enough for a tile's edge, several blocks and a window, without long waits in the interpreter.
SOME = (0, 1, 3, 4)


def test_prompts_in_chunks_then_decode(tiny: Tiny) -> None:
    prompts = [tiny.prompts[index] for index in SOME]
    steps = CudaSteps(tiny.directory, prompts, max(LENGTHS[index] for index in SOME))
    parts: list[list[np.ndarray]] = [[] for _ in prompts]
    # All but each prompt's last three tokens in chunks; those one at a time, together.
    while shares := {
        row: min(16, len(prompt) - 3 - steps.computed[row])
        for row, prompt in enumerate(prompts)
        if len(prompt) - 3 > steps.computed[row]
    }:
        for row, logits in steps.step(shares).items():
            parts[row].append(logits)
    while shares := {row: 1 for row, prompt in enumerate(prompts) if len(prompt) > steps.computed[row]}:
        for row, logits in steps.step(shares).items():
            parts[row].append(logits)

    for index, got in zip(SOME, parts, strict=True):
        check_logits(np.concatenate(got), tiny.logits[index])
