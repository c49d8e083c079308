"""On a GPU: whole vocabularies, the GPU's own exp, no waiting and no memory taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from pagoda.sampling.batch import SamplingBatch
from pagoda.sampling.cuda_sampler import CudaSampler
from pagoda.sampling.torch_logprobs import logprob_tensors
from pagoda.sampling.torch_sampler import sample
from tests.sampling.requests import new_state

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

ROWS = 256
VOCAB = 151_936
ASKED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {},
    {"top_k": 20, "top_p": 0.95, "temperature": 0.6},
    {"top_p": 0.95, "temperature": 2.0},
    {"temperature": 100.0},
    {"top_k": 5000, "top_p": 0.9, "min_p": 1e-6, "temperature": 1.5},
    {"min_p": 0.05, "prompt": range(1000), "repetition_penalty": 1.2},
    {"temperature": 0.0, "prompt": range(500), "output": range(300), "frequency_penalty": 0.3},
]


@pytest.fixture(scope="module")
def sampler() -> CudaSampler:
    multiprocessors = torch.cuda.get_device_properties("cuda").multi_processor_count
    return CudaSampler(torch.device("cuda"), ROWS, VOCAB, multiprocessors)


def random_logits(rows: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(rows, VOCAB, generator=generator, device="cuda") * 3).to(dtype).float()


@pytest.mark.parametrize("rows", [1, 3, ROWS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_the_torch_sampler_chooses(sampler: CudaSampler, rows: int, dtype: torch.dtype) -> None:
    token_ids = torch.zeros(rows, dtype=torch.int32, device="cuda")
    broken = torch.ones(rows, dtype=torch.bool, device="cuda")
    for seed in range(8):
        logits = random_logits(rows, seed, dtype)
        asked = [ASKED[(row + seed) % len(ASKED)] for row in range(rows)]
        batch = SamplingBatch.of([new_state(VOCAB, seed=seed + row, **each) for row, each in enumerate(asked)])
        sampler.launch(logits, batch, token_ids, broken)
        assert token_ids.tolist() == sample(logits, batch, VOCAB)[0].tolist()
        assert not broken.any()


def test_log_probabilities(sampler: CudaSampler) -> None:
    logits = random_logits(ROWS, 5, torch.float32)
    rows, token_ids = np.arange(ROWS), np.arange(ROWS) * 500
    mine = sampler.logprobs(logits, rows, token_ids, 20).to_host()
    places, ids = torch.from_numpy(rows).cuda(), torch.from_numpy(token_ids).cuda()
    for one, other in zip(mine, logprob_tensors(logits, places, ids, 20, VOCAB).to_host(), strict=True):
        assert (one.token_ids, one.ranks) == (other.token_ids, other.ranks)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_nothing_is_waited_for_and_no_memory_is_taken(sampler: CudaSampler) -> None:
    logits = random_logits(8, 6, torch.float32)
    batch = SamplingBatch.of([new_state(VOCAB, seed=row, **each) for row, each in enumerate(ASKED)])
    token_ids = torch.zeros(8, dtype=torch.int32, device="cuda")
    broken = torch.zeros(8, dtype=torch.bool, device="cuda")
    for _ in range(2):  # the first launch may compile
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        torch.cuda.set_sync_debug_mode("error")
        try:
            sampler.launch(logits, batch, token_ids, broken)
            sampler.logprobs(logits, np.arange(8), token_ids, 5)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
