"""Thousands of requests through a cache that hardly holds the longest: each gets what it gets alone, and nothing is lost."""

from __future__ import annotations

import os
import random
import string
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagoda import LLM, RequestOutput, SamplingParams
from pagoda.core import invariants
from pagoda.core.request import Request
from pagoda.core.watermark import FixedShare
from pagoda.engine.handle import RequestHandle
from pagoda.errors import InvalidValueError
from pagoda.telemetry.steps import StepLog
from tests.soak import soak_count

REQUESTS = soak_count(5000)
MAX_MODEL_LEN, BLOCK_SIZE = 240, 16
NUM_BLOCKS = round(1.2 * MAX_MODEL_LEN / BLOCK_SIZE)
MOST_GROWTH = 1 << 20  # bytes of memory, over the second half


@dataclass(frozen=True)
class Asked:
    """One token a character. fits: whether there is room for prompt and max_tokens."""

    prompt: str
    sampling: SamplingParams
    salt: str | None

    @property
    def fits(self) -> bool:
        return len(self.prompt) + (self.sampling.max_tokens or 0) <= MAX_MODEL_LEN


class NoHeadroom(FixedShare):
    """Whoever fits at the moment enters, so that those who run take each other's blocks all the time."""

    def headroom(self, running: Sequence[Request], candidate: Request, num_blocks: int, block_size: int) -> int:
        return 0


def make_requests(count: int) -> list[Asked]:
    """Most begin like others do, some are too long, some as long as can be.

    All are written with 50 words, whole or cut off, since the library that tokenizes remembers the first 10,000 words it
    meets, with kilobytes for a long one. That memory is bounded, but it would be growing here from beginning to end.
    """
    rng = random.Random(count)
    words = ["".join(rng.choices(string.ascii_letters, k=rng.randint(1, 8))) for _ in range(50)]

    def text(length: int) -> str:
        return "".join(" " + word for word in rng.choices(words, k=length))[:length]

    shared = [text(150) for _ in range(4)]

    def one(number: int) -> Asked:
        prompt = rng.choice(shared)[: rng.choice((0, 33, 80, 150))] + text(rng.randint(1, 40))
        room = MAX_MODEL_LEN - len(prompt)
        sampling = SamplingParams(
            temperature=rng.choice((0.0, 0.0, 1.0)),
            seed=number,
            max_tokens=rng.choice((rng.randint(1, 40), rng.randint(1, 40), room, room + 1)),
            n=rng.choice((1, 1, 1, 1, 3)),
            ignore_eos=rng.random() < 0.3,
            logprobs=rng.choice((None, None, 1)),
        )
        return Asked(prompt, sampling, rng.choice((None, None, None, "salt")))

    return [one(number) for number in range(count)]


def own_bytes() -> int:
    """Resident memory that is no file's."""
    _, resident, of_files, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def check(asked: Asked, got: RequestOutput, expected: RequestOutput) -> None:
    """What an aborted one has is the beginning of it."""
    assert got.error is None
    for mine, whole in zip(got.outputs, expected.outputs, strict=True):
        length = len(mine.token_ids)
        assert mine.token_ids == whole.token_ids[:length]
        assert mine.logprobs == (None if whole.logprobs is None else whole.logprobs[:length])
        if mine.finish_reason != "abort":
            assert (mine.text, mine.finish_reason) == (whole.text, whole.finish_reason)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the process's memory from /proc")
def test_a_storm_in_a_small_cache_changes_nothing_and_loses_nothing(tiny_model: str) -> None:
    requests = make_requests(REQUESTS)
    fitting = [asked for asked in requests if asked.fits]
    assert len(fitting) < len(requests)
    common = {"threads": 1, "max_model_len": MAX_MODEL_LEN, "generation_config": "none"}
    with LLM(tiny_model, num_kv_blocks=960, prefix_cache=False, **common) as roomy:
        outputs = roomy.generate([asked.prompt for asked in fitting], [asked.sampling for asked in fitting])
        expected = dict(zip(map(id, fitting), outputs, strict=True))
        assert roomy.stats.num_preemptions == 0
    rng, memory = random.Random(0), 0
    with LLM(tiny_model, num_kv_blocks=NUM_BLOCKS, max_num_seqs=12, max_batched_tokens=96, **common) as llm:
        core = llm._engine.client._engine._core
        core.scheduler.watermark = NoHeadroom(0.0)
        # What is kept of the past is bounded. With small bounds it is all there by the second half, which must then be flat.
        core.step_log, core.scheduler.kv.cache._num_remembered = StepLog(64), 64
        in_flight: deque[tuple[Asked, RequestHandle]] = deque()
        num_aborted = num_refused = 0
        for number, asked in enumerate(requests):
            if number == len(requests) // 2:
                memory = own_bytes()
            if not asked.fits:
                with pytest.raises(InvalidValueError, match="max_tokens"):
                    llm.submit(asked.prompt, asked.sampling, cache_salt=asked.salt)
                num_refused += 1
                continue
            in_flight.append((asked, llm.submit(asked.prompt, asked.sampling, cache_salt=asked.salt)))
            if rng.random() < 0.2:
                rng.choice(in_flight)[1].cancel()
            while len(in_flight) > rng.randint(1, 40):
                done, handle = in_flight.popleft()
                output = handle.result(timeout=300)
                check(done, output, expected[id(done)])
                num_aborted += any(choice.finish_reason == "abort" for choice in output.outputs)
        for done, handle in in_flight:
            check(done, handle.result(timeout=300), expected[id(done)])
        growth = own_bytes() - memory
        stats = llm.stats
        assert (stats.violations, llm.failure) == (0, None)
        assert stats.num_preemptions > len(requests) / 10
        assert stats.prefix.hit_tokens > 10 * len(requests)
        assert min(num_aborted, num_refused) > len(requests) / 50
    assert core.scheduler.kv.num_free_blocks == NUM_BLOCKS
    invariants.check(core.scheduler)
    assert growth < MOST_GROWTH
