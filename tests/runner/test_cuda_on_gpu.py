"""What only a GPU can show of its runner: captured steps, no waiting but for results, and no memory taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.core.driver import Driver, Received, make_request, make_scheduler
from tests.runner.cuda_tiny import BLOCK_SIZE, cuda_runner, reference_runner
from tests.runner.test_cuda_traffic import resolved

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


def driver_of(runner: object) -> Driver:
    driver = Driver(make_scheduler(num_blocks=100, block_size=BLOCK_SIZE, max_batched_tokens=16), 1)
    driver.runner = runner
    return driver


def mixed_traffic(driver: Driver, name: str, **sampling: object) -> list[Received]:
    requests = [resolved(make_request(f"{name}{length}", length, 12, **sampling)) for length in (3, 17, 1)]
    driver.add(*requests)
    driver.finish()
    return [driver.received[request.key] for request in requests]


@pytest.fixture
def _waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def test_decode_steps_are_captured_and_text_stays_the_reference_s(tiny_model: str) -> None:
    runner = cuda_runner(tiny_model)
    driver = driver_of(runner)
    told = [mixed_traffic(driver, name) for name in "abc"]
    assert runner.graphs.problem is None
    assert len(runner.graphs.captured) > 1
    expected = mixed_traffic(driver_of(reference_runner(tiny_model)), "a")
    assert told == [expected] * 3
    runner.close()


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.3}])
def test_the_host_waits_for_nothing_but_results(
    tiny_model: str, sampling: dict[str, float], request: pytest.FixtureRequest
) -> None:
    driver = driver_of(cuda_runner(tiny_model))
    request.getfixturevalue("_waiting_is_an_error")
    mixed_traffic(driver, "a", **sampling)
    mixed_traffic(driver, "b", logprobs=2, prompt_logprobs=1, **sampling)


def test_the_device_is_asked_for_no_memory(tiny_model: str) -> None:
    driver = driver_of(cuda_runner(tiny_model))
    mixed_traffic(driver, "warm", temperature=0.8, logprobs=2)
    before = torch.cuda.memory_stats()["num_device_alloc"]
    mixed_traffic(driver, "greedy")
    mixed_traffic(driver, "chance", temperature=0.8, top_p=0.9, frequency_penalty=0.3)
    mixed_traffic(driver, "scored", logprobs=3, prompt_logprobs=1)
    assert torch.cuda.memory_stats()["num_device_alloc"] == before
