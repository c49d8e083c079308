"""The GPU's runner under the real scheduler: a step in flight, preemption and aborts change nobody's text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from pagoda.core.request import Request
from pagoda.core.step import RequestKey
from pagoda.runner.cuda_queue import CudaQueue
from pagoda.runner.interface import Runner
from tests.core.driver import VOCAB_SIZE, Driver, Received, make_request, make_scheduler
from tests.core.test_random_traffic import random_request, random_scheduler
from tests.runner.bigram import cuda_bigram_runner
from tests.runner.cuda_tiny import BLOCK_SIZE, cuda_runner, reference_runner
from tests.runner.fake_graphs import FakeBackend
from tests.runner.late_queue import LateQueue
from tests.runner.reference_sampler import ReferenceSampler
from tests.soak import soak_count

RUNS = soak_count(120)
# So that nobody's text is the same token again and again.
TABLE = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(0)) * 3


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    # More threads only wait for each other over a model so small.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def resolved(request: Request) -> Request:
    request.sampling = request.sampling.resolved({}, 9)
    return request


def bigram_traffic(seed: int, depth: int, queue: CudaQueue | None = None) -> tuple[dict[RequestKey, Received], int]:
    """What each client was told, and how many requests were preempted. One is aborted, and comes again under the same name."""
    rng = random.Random(seed)
    scheduler = random_scheduler(rng)
    driver, backend = Driver(scheduler, depth), FakeBackend()
    runner, _ = cuda_bigram_runner(
        TABLE,
        num_blocks=scheduler.kv.num_blocks,
        block_size=scheduler.kv.block_size,
        max_tokens=scheduler.config.max_batched_tokens,
        max_seqs=scheduler.config.max_num_seqs,
        slice_rows=3,
        backend=backend,
        queue=queue,
        sampler=ReferenceSampler(VOCAB_SIZE),
    )
    # The model does not look at the cache, and clearing every block takes the interpreter long.
    runner._clearer = SimpleNamespace(clear=lambda block_ids: None)
    driver.runner = runner
    for number in range(rng.randint(2, 8)):
        driver.add(resolved(random_request(rng, f"r{number}", scheduler)))
        for _ in range(rng.choice([0, 0, 1, 5])):
            driver.turn()
    driver.abort("r0")
    driver.add(resolved(make_request("r0", (7, 8, 9), 5, temperature=1.0, repetition_penalty=1.2)))
    driver.finish()
    return driver.received, scheduler.num_preemptions


def test_random_traffic_with_a_step_in_flight_tells_what_it_tells_without() -> None:
    num_preemptions = 0
    for seed in range(RUNS):
        received, preemptions = bigram_traffic(seed, 0)
        overlapped, more_preemptions = bigram_traffic(seed, 1)
        assert received == overlapped, f"seed {seed}"
        num_preemptions += min(preemptions, more_preemptions)
    assert num_preemptions > RUNS / 10


def test_host_memory_is_left_alone_while_copies_are_under_way() -> None:
    for seed in range(3):
        queue = LateQueue()
        assert bigram_traffic(seed, 1, queue) == bigram_traffic(seed, 1), f"seed {seed}"
        assert queue.num_waits > 10


def generate(runner: Runner, depth: int, num_blocks: int) -> tuple[dict[str, list[int]], int]:
    """Three greedy texts, of which the first is left after a while; and how often one was preempted."""
    driver = Driver(make_scheduler(num_blocks=num_blocks, block_size=BLOCK_SIZE, max_batched_tokens=16), depth)
    driver.runner = runner
    rng = random.Random(5)
    for name, length in (("left", 3), ("a", 7), ("b", 11)):
        driver.add(resolved(make_request(name, tuple(rng.randrange(250) for _ in range(length)), 6)))
    for _ in range(4):
        driver.turn()
    driver.abort("left")
    driver.finish()
    runner.close()
    texts = {key.request_id: received.token_ids for key, received in driver.received.items()}
    return {**texts, "left": texts["left"][:3]}, driver.scheduler.num_preemptions


def test_greedy_text_is_the_reference_s(tiny_model: str) -> None:
    expected, _ = generate(reference_runner(tiny_model), 0, 60)
    assert len(set(map(tuple, expected.values()))) == 3
    text, num_preemptions = generate(cuda_runner(tiny_model, 8), 1, 8)
    assert text == expected
    assert num_preemptions > 0
