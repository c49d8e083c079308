"""Once it is loaded, the GPU's runner takes no memory: so it cannot run out of it in the middle of the work."""

from __future__ import annotations

import torch

from tests.core.driver import Driver, make_request, make_scheduler
from tests.runner.bigram import cuda_bigram_runner
from tests.runner.new_storages import NewStorages
from tests.runner.test_cuda_traffic import resolved

VOCAB = 1000
# Small things on the way to a choice are allowed on the CPU; a row of logits is not.
LIMIT = VOCAB


def test_a_step_takes_no_memory() -> None:
    runner, _ = cuda_bigram_runner(torch.eye(VOCAB).roll(1, 1), num_blocks=40)
    driver = Driver(make_scheduler(num_blocks=40, max_num_seqs=4, max_batched_tokens=16), 1)
    driver.runner = runner
    with NewStorages(LIMIT) as storages:
        for length in (3, 17, 1):
            driver.add(resolved(make_request(f"r{length}", length, 5)))
        driver.finish()
    assert storages.made == []
    assert len(driver.steps) > 5
