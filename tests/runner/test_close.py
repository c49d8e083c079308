"""The end of a runner, of any kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pagoda import _native
from pagoda.models.registry import family_for
from pagoda.runner.interface import Runner
from pagoda.runner.native_runner import build_native_runner
from tests.engine.exact import BLOCK_SIZE, LLAMA, VOCAB, MemoryCheckpoint
from tests.runner.bigram import bigram_runner, cuda_bigram_runner


def native_runner() -> Runner:
    checkpoint = MemoryCheckpoint(LLAMA, ["Q4_0"])
    return build_native_runner(
        checkpoint,
        family_for(LLAMA),
        checkpoint.spec,
        threads=2,
        instruction_set=_native.instruction_sets()[0],
        quantization=None,
        kv_dtype="bfloat16",
        num_blocks=4,
        block_size=BLOCK_SIZE,
        max_num_seqs=1,
        max_batched_tokens=16,
        real_vocab_size=VOCAB,
    )


@pytest.mark.parametrize(
    "build",
    [native_runner, lambda: bigram_runner(torch.eye(6)), lambda: cuda_bigram_runner(torch.eye(6))[0]],
    ids=["native", "torch", "cuda"],
)
def test_closing_twice_is_closing_once(build: Callable[[], Runner]) -> None:
    runner = build()
    runner.close()
    runner.close()
