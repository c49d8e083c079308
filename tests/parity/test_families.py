"""Every family computes what `transformers` computes, in float32, on tiny seeded models."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.conftest import LENGTHS, NUM_TOKENS, Tiny
from tests.parity.engine import generate
from tests.parity.harness import Steps

LARGEST_DIFFERENCE = 1e-4  # of the range of the logits


def check_logits(got: np.ndarray, reference: np.ndarray) -> None:
    assert got.shape == reference.shape
    difference = np.abs(got - reference).max() / (reference.max() - reference.min())
    assert difference <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("index", range(3), ids=[f"{length}-tokens" for length in LENGTHS[:3]])
def test_logits_of_a_prompt_alone(tiny: Tiny, index: int) -> None:
    steps = Steps(tiny.loaded, [tiny.prompts[index]], LENGTHS[index])

    check_logits(steps.prefill(chunk=512)[0], tiny.logits[index])


def test_logits_in_a_batch_of_mixed_lengths_and_chunks(tiny: Tiny) -> None:
    steps = Steps(tiny.loaded, tiny.prompts, max(LENGTHS))

    for got, reference in zip(steps.prefill(chunk=32), tiny.logits, strict=True):
        check_logits(got, reference)


def test_greedy_tokens_alone(tiny: Tiny) -> None:
    for prompt, continuation in zip(tiny.prompts[:3], tiny.continuations, strict=False):
        outputs, _ = generate(str(tiny.directory), [prompt], NUM_TOKENS, max_batched_tokens=512, prefill_chunk=512)
        assert outputs == [continuation]


def test_greedy_tokens_in_a_batch_of_eight_with_chunks_of_32(tiny: Tiny) -> None:
    outputs, _ = generate(str(tiny.directory), tiny.prompts, NUM_TOKENS, max_batched_tokens=64, prefill_chunk=32)

    assert outputs == tiny.continuations
