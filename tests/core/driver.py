"""Driver: scheduler and null runner turned step by step, everything checked after each call."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pagoda.config import EngineConfig
from pagoda.core import invariants
from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.mixing import Mixing
from pagoda.core.policies import make_policy
from pagoda.core.prefix_cache import PrefixCache
from pagoda.core.request import Request, Status
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import (
    NewRequest,
    RequestKey,
    RowResult,
    RunnerOutput,
    ScheduledRow,
    SchedulerOutput,
    TokenEvent,
    TokenLogprobs,
)
from pagoda.core.watermark import FixedShare
from pagoda.runner.null import NullRunner
from pagoda.sampling_params import SamplingParams

VOCAB_SIZE = 61


def make_request(
    name: str, prompt: int | tuple[int, ...] = 4, max_tokens: int = 4, *, choice: int = 0, **fields: object
) -> Request:
    """A greedy request; other fields are those of Request, or else of SamplingParams."""
    names = ("end_token_ids", "priority", "arrival_time", "seed", "namespace")
    own = {name: fields.pop(name) for name in names if name in fields}
    tokens = (
        tuple((7 * position + len(name)) % VOCAB_SIZE for position in range(prompt))
        if isinstance(prompt, int)
        else prompt
    )
    sampling = SamplingParams(**{"temperature": 0.0, "max_tokens": max_tokens, **fields})
    return Request(RequestKey(name, choice), tokens, sampling, **{"seed": 0, **own})


def make_scheduler(
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_num_seqs: int = 8,
    max_batched_tokens: int = 32,
    prefill_chunk: int = 16,
    policy: str = "fcfs",
    watermark: float | None = 0.01,
    manager: type[KVCacheManager | ContiguousKVCacheManager] = KVCacheManager,
    mixing: Mixing | None = None,
    cache: PrefixCache | None = None,
    window: int | None = None,
) -> Scheduler:
    """watermark: the share of blocks that admission leaves free; None: what those who run are expected to need."""
    config = SchedulerConfig(max_num_seqs, max_batched_tokens, prefill_chunk)
    paged = manager is KVCacheManager
    kv = KVCacheManager(num_blocks, block_size, cache, window) if paged else manager(num_blocks, block_size)
    fixed = None if watermark is None else FixedShare(watermark)
    return Scheduler(config, kv, make_policy(EngineConfig(policy=policy)), mixing, fixed)


@dataclass
class Received:
    """What the client of one choice has been told."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_token_id: int | None = None
    error: str | None = None

    def take(self, event: TokenEvent) -> None:
        assert self.finish_reason is None, "an event after the end"
        assert event.index == len(self.token_ids)
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        self.prompt_logprobs += event.prompt_logprobs
        self.finish_reason, self.stop_token_id, self.error = event.finish_reason, event.stop_token_id, event.error


class Driver:
    """Does what the engine does, with `depth` steps in flight beyond the one being collected."""

    def __init__(self, scheduler: Scheduler, depth: int = 0) -> None:
        self.scheduler = scheduler
        kv = scheduler.kv
        window = kv.window if isinstance(kv, KVCacheManager) else None
        self.runner = NullRunner(VOCAB_SIZE, kv.num_blocks, kv.block_size, window=window)
        self.depth = depth
        self.in_flight: deque[SchedulerOutput] = deque()
        self.steps: list[SchedulerOutput] = []
        self.received: dict[RequestKey, Received] = {}

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.add(request)
            self.received[request.key] = Received()
            invariants.check(self.scheduler)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        self._take(self.scheduler.abort(request_id, choice))

    def turn(self, fail: str | None = None) -> SchedulerOutput:
        """One turn of the step loop; `fail` makes it fail when the step is submitted, or when one is collected."""
        first = self.scheduler.running[0] if self.scheduler.running else None
        step = self.scheduler.schedule()
        assert first is None or first.status is Status.RUNNING, "the first in the policy's order was preempted"
        invariants.check(self.scheduler)
        if step.rows:
            self._check(step)
            self.steps.append(step)
            if fail == "submit":
                self._take(self.scheduler.fail_step(step, "broken"))
            else:
                self.runner.submit(step)
                self.in_flight.append(step)
        if self.in_flight and (len(self.in_flight) > self.depth or not step.rows):
            oldest, output = self.in_flight.popleft(), self.runner.collect()
            self._take(
                self.scheduler.fail_step(oldest, "broken") if fail == "collect" else self.scheduler.update(output)
            )
        return step

    def finish(self, limit: int = 10_000) -> None:
        """Turn until nothing is left."""
        for _ in range(limit):
            if not self.scheduler.has_unfinished and not self.in_flight:
                break
            self.turn()
        assert not self.scheduler.has_unfinished
        assert self.scheduler.kv.num_free_blocks == self.scheduler.kv.num_blocks
        assert all(received.finish_reason is not None for received in self.received.values())

    def _take(self, events: list[TokenEvent]) -> None:
        invariants.check(self.scheduler)
        for event in events:
            self.received[event.key].take(event)

    def _check(self, step: SchedulerOutput) -> None:
        config = self.scheduler.config
        assert step.num_tokens <= config.max_batched_tokens
        assert len(step.rows) <= config.max_num_seqs
        assert all(row.num_tokens > 0 for row in step.rows)
        assert len({row.key for row in step.rows}) == len(step.rows)
        assert {request.key for request in step.new} <= {row.key for row in step.rows}


def alone(request: Request, window: int | None = None) -> Received:
    """What the request must get, found without a scheduler: its prompt in one step, then token by token."""
    sampling, key = request.sampling, request.key
    positions = len(request.prompt_token_ids) + (sampling.max_tokens or 0) + 1
    runner = NullRunner(VOCAB_SIZE, 1, positions, window=window)
    new = NewRequest(
        key, request.prompt_token_ids, request.num_prompt_tokens, sampling, request.seed, request.end_token_ids
    )
    row = ScheduledRow(key, 0, len(request.prompt_token_ids), (0,), sampling.max_tokens != 0)
    received = Received()
    runner.submit(SchedulerOutput(0, (), (new,), (row,)))
    result = runner.collect().rows[0]
    received.prompt_logprobs += result.prompt_logprobs
    ends = {*request.end_token_ids, *sampling.stop_token_ids}
    while received.finish_reason is None:
        if len(received.token_ids) == sampling.max_tokens:
            received.finish_reason = "length"
        elif result.token_id in ends and len(received.token_ids) >= sampling.min_tokens:
            received.finish_reason, received.stop_token_id = "stop", result.token_id
            received.logprobs += [result.logprobs] if result.logprobs else []
        else:
            assert result.token_id is not None
            received.token_ids.append(result.token_id)
            received.logprobs += [result.logprobs] if result.logprobs else []
            row = ScheduledRow(key, row.start + row.num_tokens, 1, (), True)
            runner.submit(SchedulerOutput(0, (), (), (row,)))
            result = runner.collect().rows[0]
    return received


def results(step: SchedulerOutput, token_id: int = 1) -> RunnerOutput:
    """A made-up outcome: the same token for every row that samples."""
    rows = [RowResult(row.key, token_id if row.samples else None) for row in step.rows]
    return RunnerOutput(step.step, tuple(rows))
