"""Trouble 8: batch size changes greedy text. Right: alone, in a crowd, in any chunks, preempted and resumed, it is the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.parity.engine import generate
from tests.tiny_model import VOCAB_SIZE, write_tiny_model

NUM_TOKENS = 24
PROMPTS = [np.random.default_rng(length).integers(0, VOCAB_SIZE, length).tolist() for length in (1, 70, 16, 33, 5, 48)]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="module")
def alone(model: str) -> list[list[int]]:
    return [
        generate(model, [prompt], NUM_TOKENS, max_batched_tokens=512, prefill_chunk=512)[0][0] for prompt in PROMPTS
    ]


def test_in_a_crowd(model: str, alone: list[list[int]]) -> None:
    outputs, _ = generate(model, PROMPTS, NUM_TOKENS, max_batched_tokens=512, prefill_chunk=512)

    assert outputs == alone


def test_among_copies_of_itself(model: str, alone: list[list[int]]) -> None:
    outputs, _ = generate(model, [PROMPTS[1]] * 8, NUM_TOKENS)

    assert outputs == [alone[1]] * 8


@pytest.mark.parametrize("chunk", [1, 3, 16, 31, 64])
def test_with_every_chunk_size(model: str, alone: list[list[int]], chunk: int) -> None:
    outputs, _ = generate(model, PROMPTS, NUM_TOKENS, max_batched_tokens=len(PROMPTS) + chunk, prefill_chunk=chunk)

    assert outputs == alone


def test_through_forced_preemption(model: str) -> None:
    # Each starts in one block and ends in three; six of them share twelve.
    prompts = [prompt[-15:] for prompt in PROMPTS]
    alone = [generate(model, [prompt], NUM_TOKENS)[0][0] for prompt in prompts]

    outputs, num_preemptions = generate(model, prompts, NUM_TOKENS, num_blocks=12)

    assert num_preemptions > 0
    assert outputs == alone
