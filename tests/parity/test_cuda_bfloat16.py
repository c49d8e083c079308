"""bfloat16, what a GPU computes in by default: as near to float32 as the reference is in bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pagoda.loading.resolve import open_checkpoint
from tests.interpreter import mend_bfloat16
from tests.parity.configs import tiny_model
from tests.parity.cuda import CudaSteps
from tests.parity.harness import Sequences, Steps, load

PROMPTS = [list(range(3, 40)), list(range(50, 55)), [9, 8, 7, 6]]
# Of the reference's own error; the interpreter cuts numbers off where a GPU rounds them, which is twice as far.
MOST_OF_ITS_ERROR = 4.0


def logits(steps: Sequences) -> np.ndarray:
    """Of all tokens: all but each prompt's last two in one step, those one at a time together."""
    parts = [steps.step({row: len(prompt) - 2 for row, prompt in enumerate(PROMPTS)})]
    parts += [steps.step(dict.fromkeys(range(len(PROMPTS)), 1)) for _ in range(2)]
    return np.concatenate([rows for part in parts for rows in part.values()])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa", "qwen3", "gemma3"])
def test_logits_in_bfloat16(name: str, tmp_path: Path) -> None:
    mend_bfloat16()
    tiny_model(name).save_pretrained(tmp_path)
    most = max(map(len, PROMPTS))
    exact = logits(Steps(load(open_checkpoint(str(tmp_path))), PROMPTS, most))
    narrow = load(open_checkpoint(str(tmp_path)), torch.bfloat16)
    reference = logits(Steps(narrow, PROMPTS, most, torch.bfloat16))

    got = logits(CudaSteps(tmp_path, PROMPTS, most, torch.bfloat16))

    error, its_error = (np.sqrt(np.mean((each - exact) ** 2)) for each in (got, reference))
    assert its_error > 0
    assert error <= MOST_OF_ITS_ERROR * its_error
