"""EngineCore's turns, taken by hand: steps in flight, and clean bookkeeping whenever nothing is left to do."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace

import pytest

from pagoda import LLM
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.step import RequestKey, TokenEvent
from pagoda.core.watermark import FixedShare
from pagoda.engine.core import EngineCore, _choices
from pagoda.engine.messages import Abort, Message, Submit
from pagoda.errors import InvariantError
from pagoda.planning.costs import CostModel
from pagoda.runner.null import NullRunner
from pagoda.sampling_params import SamplingParams
from tests.engine.gated import BLOCK_SIZE, PRINTABLE, Gate, make_core, put_before
from tests.planning.specs import tiny


def submit(request_id: str, max_tokens: int = 20, num_prompt_tokens: int = 10, **sampling: object) -> Submit:
    params = SamplingParams(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return Submit(
        request_id=request_id,
        prompt_token_ids=tuple(sum(map(ord, request_id)) % 90 + place % 3 for place in range(num_prompt_tokens)),
        sampling=params.resolved({}, max_tokens),
        seed=7,
        end_token_ids=frozenset(),
        priority=0,
        arrival_time=0.0,
    )


def take_turns(core: EngineCore, messages: list[Message]) -> list[TokenEvent]:
    events = core.turn(messages)
    for _ in range(1000):
        if not core.has_work:
            return events
        events += core.turn([])
    raise AssertionError("it never came to an end")


def ungated(core: EngineCore) -> Gate:
    gate = put_before(core)
    gate.allow()
    return gate


Told = dict[RequestKey, tuple[list[int], list[str]]]


def told(events: list[TokenEvent]) -> Told:
    """For each choice its tokens and how it ended, having checked that nothing is missing."""
    found: Told = defaultdict(lambda: ([], []))
    for event in events:
        token_ids, ends = found[event.key]
        assert event.index == len(token_ids)
        token_ids.extend(event.token_ids)
        if event.finish_reason is not None:
            ends.append(event.finish_reason)
    return dict(found)


REQUESTS: list[Message] = [
    submit("long prompt", num_prompt_tokens=50),
    submit("greedy", temperature=0.0),
    submit("three choices", temperature=1.0, n=3),
    submit("one token", max_tokens=1),
    submit("stopped", max_tokens=60, num_prompt_tokens=3, stop_token_ids=tuple(range(0, 94, 7))),
]


@pytest.mark.parametrize("num_blocks", [64, 20])
def test_a_step_ahead_of_the_device_gives_what_one_at_a_time_gives(num_blocks: int) -> None:
    """20 blocks are too few for all of them at once: there are preemptions too."""
    results, gates, cores = [], [], []
    for depth in (0, 1):
        core = make_core(depth=depth, num_blocks=num_blocks, watermark=FixedShare(0.0))
        gates.append(ungated(core))
        cores.append(core)
        results.append(told(take_turns(core, REQUESTS)))
    assert results[0] == results[1]
    assert [len(ends) for _, ends in results[0].values()] == [1] * 7
    assert [gate.most_in_flight for gate in gates] == [1, 2]
    assert [core.scheduler.num_preemptions > 0 for core in cores] == [num_blocks == 20] * 2


def test_a_request_aborted_while_its_step_is_in_flight_ends_cleanly() -> None:
    core = make_core(depth=1)
    gate = ungated(core)
    events = core.turn([submit("doomed"), submit("other")])
    events += core.turn([])
    events += take_turns(core, [Abort("doomed")])
    assert gate.most_in_flight == 2
    assert told(events)[RequestKey("doomed", 0)][1] == ["abort"]
    assert (
        told(events)[RequestKey("other", 0)] == told(take_turns(make_core(), [submit("other")]))[RequestKey("other", 0)]
    )


def test_on_a_gpu_a_step_is_in_flight_ahead_and_on_a_cpu_none(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        engine = llm._engine
        for kind, most in (("cpu", 1), ("cuda", 2)):
            engine.device = replace(engine.device, kind=kind)
            core = engine.own_loop(KVCacheManager(64, llm.config.block_size))
            core._runner = NullRunner(PRINTABLE, 64, llm.config.block_size)
            gate = ungated(core)
            take_turns(core, [submit("Hello")])
            assert gate.most_in_flight == most


def test_a_step_says_who_lost_how_many_tokens_and_to_whom() -> None:
    core = make_core(num_blocks=6, watermark=FixedShare(0.0))
    ungated(core)
    events = take_turns(core, [submit("first", num_prompt_tokens=BLOCK_SIZE), submit("second", num_prompt_tokens=5)])
    assert {tuple(ends) for _, ends in told(events).values()} == {("length",)}
    records = [record for record in core.step_log.records if record.preemptions]
    assert records
    for record in records:
        (preemption,) = record.preemptions
        assert preemption.victim.request_id == "second"
        assert preemption.on_behalf_of.request_id in (
            "first",
            "second",
        )  # the one who needs a block may itself give way
        assert preemption.lost_tokens >= 5
    totals = core.step_log.totals
    assert totals.preemptions == core.stats().num_preemptions == len(records)
    assert totals.lost_tokens == sum(record.lost_tokens for record in records)


@pytest.mark.parametrize("messages", [[], [Abort("Hello")]], ids=["ends", "is aborted"])
def test_a_leak_is_counted_told_and_mended_when_the_last_request(
    messages: list[Message], caplog: pytest.LogCaptureFixture
) -> None:
    core = make_core()
    core.turn([submit("Hello")])
    (leaked,) = core.scheduler.kv.pool.allocate(1)
    assert core.check()  # not idle yet
    take_turns(core, messages)
    assert not core.check()
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert "nobody runs, but not all blocks are free" in record.message
    assert f"block {leaked} counts 1 holders, but 0 tables list it" in record.message
    assert core.stats().violations == 1
    assert core.stats().num_free_blocks == core.stats().num_blocks
    assert core.check()
    again = told(take_turns(core, [submit("Hello")]))
    assert again == told(take_turns(make_core(), [submit("Hello")]))
    assert core.check()


def test_a_leak_is_found_at_once_however_lately_all_was_well() -> None:
    core = make_core()
    assert core.check()
    core.scheduler.kv.pool.allocate(1)
    assert not core.check()


def test_a_leak_does_not_keep_those_who_wait_waiting() -> None:
    core = make_core(num_blocks=8)
    ungated(core)
    events = core.turn([submit("first"), submit("as large as the cache", num_prompt_tokens=8 * BLOCK_SIZE - 20)])
    core.scheduler.kv.pool.allocate(1)
    while core.has_work:
        events += core.turn([])
        core.check()
    assert told(events)[RequestKey("as large as the cache", 0)][1] == ["length"]
    assert core.stats().violations == 1


def test_books_that_cannot_be_mended_end_the_engine() -> None:
    core = make_core()
    core.scheduler.requests["lost"] = {0: next(_choices(submit("lost")))}
    with pytest.raises(InvariantError, match="the requests under way are not just those that run"):
        core.check()


def test_the_engine_s_thread_looks_when_it_is_idle_and_goes_on(tiny_model: str) -> None:
    with LLM(tiny_model, threads=1, num_kv_blocks=64) as llm:
        greedy = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
        (first,) = llm.generate("Hello", greedy)
        handle = llm.submit("Hello", greedy)
        deltas = iter(handle)
        next(deltas)
        llm._engine.client._engine._core.scheduler.kv.pool.allocate(1)
        assert handle.result().outputs[0].text == first.outputs[0].text
        (again,) = llm.generate("Hello", greedy)
        assert again.outputs[0].text == first.outputs[0].text
        assert (llm.stats.violations, llm.failure) == (1, None)


def test_an_unfinished_chunk_of_a_prompt_costs_no_logits() -> None:
    core = make_core()
    take_turns(core, [submit("long prompt", max_tokens=1, num_prompt_tokens=100)])
    costs = CostModel(tiny(), "float32", 4)
    budget = core.scheduler.config.max_batched_tokens
    starts = range(0, 100, budget)
    assert len(starts) > 1
    expected = [costs.step_cost([(start, min(budget, 100 - start))], int(start == starts[-1])) for start in starts]
    assert [record.cost for record in core.step_log.records] == expected


def test_clean_bookkeeping_is_no_violation() -> None:
    core = make_core()
    core.turn([submit("Hello")])
    (event,) = core.turn([Abort("Hello")])
    assert event.finish_reason == "abort"
    assert take_turns(core, [submit("Hello", num_prompt_tokens=3 * BLOCK_SIZE)])
    assert core.check()
    assert core.stats().violations == 0
