"""Once it is loaded, the GPU's runner takes no memory: so it cannot run out of it in the middle of the work."""

from __future__ import annotations

import pytest
import torch

from tests.core.driver import Driver, make_request, make_scheduler
from tests.runner.bigram import cuda_bigram_runner
from tests.runner.cuda_tiny import BLOCK_SIZE, cuda_runner
from tests.runner.new_storages import NewStorages
from tests.runner.test_cuda_traffic import resolved

VOCAB = 1000
# Small things on the way to a choice are allowed on the CPU; a row of logits is not.
LIMIT = VOCAB


def mixed_traffic(driver: Driver, name: str, **sampling: object) -> None:
    for number, length in enumerate((3, 17, 1)):
        driver.add(resolved(make_request(f"{name}{number}", length, 5, **sampling)))
    driver.finish()


def test_a_step_takes_no_memory() -> None:
    runner, _ = cuda_bigram_runner(torch.eye(VOCAB).roll(1, 1), num_blocks=40)
    driver = Driver(make_scheduler(num_blocks=40, max_num_seqs=4, max_batched_tokens=16), 1)
    driver.runner = runner
    with NewStorages(LIMIT) as storages:
        mixed_traffic(driver, "a")
    assert storages.made == []
    assert len(driver.steps) > 5


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_device_is_asked_for_no_memory(tiny_model: str) -> None:
    runner = cuda_runner(tiny_model)
    driver = Driver(make_scheduler(num_blocks=100, block_size=BLOCK_SIZE, max_batched_tokens=16), 1)
    driver.runner = runner
    mixed_traffic(driver, "warm", temperature=0.8, logprobs=2)
    before = torch.cuda.memory_stats()["num_device_alloc"]
    mixed_traffic(driver, "greedy")
    mixed_traffic(driver, "chance", temperature=0.8, top_p=0.9, frequency_penalty=0.3)
    mixed_traffic(driver, "scored", logprobs=3, prompt_logprobs=1)
    assert torch.cuda.memory_stats()["num_device_alloc"] == before
    runner.close()
