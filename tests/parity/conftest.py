"""Each tiny model is made, saved, and loaded once a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagoda.loading.resolve import open_checkpoint
from tests.parity.configs import CONFIGS, tiny_model
from tests.parity.harness import Loaded, load

# The prompt lengths that every family is tested with, and five more to fill a batch of eight.
LENGTHS = (1, 17, 300, 40, 5, 64, 33, 120)
NUM_TOKENS = 64


@dataclass
class Tiny:
    """One tiny model in both engines. prompts: of LENGTHS. logits: the reference's, at each prompt's every token."""

    directory: Path
    loaded: Loaded
    prompts: list[list[int]]
    logits: list[np.ndarray]
    continuations: list[list[int]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models gain nothing from more, and threads that wait for each other are slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=sorted(CONFIGS))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    directory = tmp_path_factory.mktemp(request.param)
    model = tiny_model(request.param)
    model.save_pretrained(directory)
    rng = np.random.default_rng(7)
    prompts = [rng.integers(3, model.config.vocab_size, length).tolist() for length in LENGTHS]
    with torch.inference_mode():
        logits = [model(torch.tensor([prompt])).logits[0].numpy() for prompt in prompts]
        continuations = [_continuation(model, prompt) for prompt in prompts]
    return Tiny(directory, load(open_checkpoint(str(directory))), prompts, logits, continuations)


def _continuation(model: Any, prompt: list[int]) -> list[int]:
    output = model.generate(
        torch.tensor([prompt]), max_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return output[0, len(prompt) :].tolist()
