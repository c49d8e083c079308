"""An engine whose steps happen only when a test allows them, with made-up tokens in place of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.policies import FirstComeFirstServed, Policy
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.core.step import RunnerOutput, SchedulerOutput
from pagoda.core.watermark import Watermark
from pagoda.engine.admission import Admission, Admitted
from pagoda.engine.client import EngineClient, Listener
from pagoda.engine.core import EngineCore
from pagoda.engine.handle import RequestHandle
from pagoda.engine.outputs import RequestOutput
from pagoda.planning.costs import CostModel
from pagoda.runner.interface import Runner
from pagoda.runner.null import NullRunner
from pagoda.sampling_params import SamplingParams
from pagoda.telemetry.steps import StepLog
from pagoda.text.directory_vocabulary import tokenizer_from_directory
from tests.planning.specs import tiny

Result = TypeVar("Result")
PATIENCE = 30.0  # seconds after which a test that hangs fails; none waits so long otherwise
NUM_BLOCKS, BLOCK_SIZE, MAX_MODEL_LEN = 64, 4, 128
PRINTABLE = 94  # the tiny model's first ids are the bytes "!" to "~": one token is one character


class Gate:
    """A runner in front of another: it holds each step until it is allowed.

    steps: for each step started, the ids of the requests that computed in it. most_in_flight: the most steps that were
    started and not collected at once. on_collect: called in the engine's thread before each step's results.
    """

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self._permits, self._held = threading.Semaphore(0), threading.Semaphore(0)
        self._in_flight = 0
        self.steps: list[list[str]] = []
        self.most_in_flight = 0
        self.on_collect: Callable[[], object] = lambda: None

    def submit(self, step: SchedulerOutput) -> None:
        self.steps.append([row.key.request_id for row in step.rows])
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        self._inner.submit(step)

    def collect(self) -> RunnerOutput:
        self._held.release()
        self._permits.acquire(timeout=PATIENCE)  # should nobody come, the step goes on and the test fails by itself
        self.on_collect()
        self._in_flight -= 1
        return self._inner.collect()

    def close(self) -> None:
        self._inner.close()

    def holds(self, steps: int = 1) -> None:
        """Wait until the engine has come to so many more steps that it may not finish yet."""
        for _ in range(steps):
            assert self._held.acquire(timeout=PATIENCE), "no step was started"

    def allow(self, steps: int = 10_000) -> None:
        """Let so many steps pass: by default all that a test could need."""
        self._permits.release(steps)

    def steps_of(self, request_id: str) -> int:
        return sum(request_id in ids for ids in self.steps)

    def first_step_of(self, request_id: str) -> int:
        return next(number for number, ids in enumerate(self.steps) if request_id in ids)


def put_before(core: EngineCore) -> Gate:
    """A gate in front of an engine's own runner, before it has any work."""
    gate = Gate(core._runner)
    core._runner = gate
    return gate


def make_core(
    *,
    max_num_seqs: int = 8,
    policy: Policy | None = None,
    depth: int = 0,
    num_blocks: int = NUM_BLOCKS,
    watermark: Watermark | None = None,
) -> EngineCore:
    return EngineCore(
        Scheduler(
            SchedulerConfig(max_num_seqs, max_batched_tokens=32, prefill_chunk=16),
            KVCacheManager(num_blocks, BLOCK_SIZE),
            policy or FirstComeFirstServed(),
            watermark=watermark,
        ),
        NullRunner(PRINTABLE, num_blocks, BLOCK_SIZE),
        CostModel(tiny(), "float32", 4),
        StepLog(),
        depth=depth,
    )


class GatedEngine:
    """A client, its core, and the gate between. A request's id is its prompt."""

    def __init__(self, tiny_model: str, *, max_num_seqs: int = 8, policy: Policy | None = None, depth: int = 0) -> None:
        self.core = make_core(max_num_seqs=max_num_seqs, policy=policy, depth=depth)
        self.gate = put_before(self.core)
        tokenizer = tokenizer_from_directory(Path(tiny_model))
        self._admission = Admission(tokenizer, None, {}, MAX_MODEL_LEN, policy="priority", max_n=8, max_stop_strings=8)
        self.client = EngineClient(self.core, tokenizer, max_open=64)

    def admit(self, prompt: str, sampling: SamplingParams, priority: int = 0) -> Admitted:
        return self._admission.admit(prompt, prompt, sampling, priority)

    def submit(self, prompt: str, sampling: SamplingParams, priority: int = 0) -> RequestHandle:
        handle = RequestHandle(prompt, self.client.abort)
        self.client.submit(self.admit(prompt, sampling, priority), handle)
        return handle

    def listen(self, prompt: str, sampling: SamplingParams, listener: Listener) -> None:
        self.client.submit(self.admit(prompt, sampling), listener)

    def run(self, prompt: str, sampling: SamplingParams) -> RequestOutput:
        """A request from beginning to end. By then the engine has taken in everything that was sent to it before."""
        return self.submit(prompt, sampling).result(PATIENCE)

    @property
    def all_blocks_are_free(self) -> bool:
        kv = self.core.scheduler.kv
        return kv.num_free_blocks == kv.num_blocks

    @property
    def threads_end(self) -> bool:
        return threads_end(self.client)


def threads_end(client: EngineClient) -> bool:
    """Whether both threads of an engine end, waiting for them."""
    threads = (client._engine._thread, client._output_thread)
    for thread in threads:
        thread.join(PATIENCE)
    return not any(thread.is_alive() for thread in threads)


def closing_began(client: EngineClient) -> threading.Event:
    """Set once `close` has told the engine to stop after the step under way, and waits for that."""
    began = threading.Event()
    thread = client._engine._thread
    join = thread.join

    def joined(timeout: float | None = None) -> None:
        began.set()
        join(timeout)

    thread.join = joined  # type: ignore[method-assign]
    return began


def close_while_held(client: EngineClient, gate: Gate) -> None:
    """Close while a step is held, which then passes; no other does."""
    began = closing_began(client)
    closing = in_thread(client.close)
    assert began.wait(PATIENCE)
    gate.allow()
    closing.result(PATIENCE)


@contextmanager
def gated_engine(
    tiny_model: str, *, max_num_seqs: int = 8, policy: Policy | None = None, depth: int = 0
) -> Iterator[GatedEngine]:
    engine = GatedEngine(tiny_model, max_num_seqs=max_num_seqs, policy=policy, depth=depth)
    try:
        yield engine
    finally:
        engine.gate.allow()  # so that it can be closed whatever became of the test
        in_thread(engine.client.close).result(PATIENCE)


def in_thread(call: Callable[[], Result]) -> Future[Result]:
    """Run it in a thread that a test which hangs leaves behind, and a process does not wait for."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
