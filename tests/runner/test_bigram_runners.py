"""The runners that use torch, step by step, over a model that can be computed by hand: all behave alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.core.step import RowResult, SchedulerOutput
from pagoda.errors import InvariantError
from pagoda.runner.interface import Runner
from tests.runner.bigram import BigramRunners
from tests.runner.steps import key, request, row, step

# After 0 comes 1, after 1 comes 2, … and after 5 comes 0; the second best is two further.
CYCLE = torch.eye(6).roll(1, 1) * 4 + torch.eye(6).roll(2, 1) * 2


@pytest.fixture(params=["torch", "cuda"])
def runners(request: pytest.FixtureRequest) -> BigramRunners:
    return BigramRunners(request.param)


def run(runner: Runner, one: SchedulerOutput) -> list[RowResult]:
    runner.submit(one)
    output = runner.collect()
    assert output.step == one.step
    assert [result.key for result in output.rows] == [each.key for each in one.rows]
    return list(output.rows)


def test_prefill_in_chunks_then_decode(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    assert run(runner, step(0, [row("a", 0, 2, [0], samples=False)], [request("a", [3, 3, 2])])) == [
        RowResult(key("a"))
    ]
    assert [run(runner, step(n, [row("a", n + 1, 1)]))[0].token_id for n in range(1, 3)] == [3, 4]
    mixed = run(runner, step(3, [row("a", 4, 1, [1]), row("b", 0, 1, [2])], [request("b", [0])]))
    assert [result.token_id for result in mixed] == [5, 1]


def test_a_step_may_be_submitted_before_the_one_before_is_collected(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    runner.submit(step(0, [row("a", 0, 1, [0])], [request("a", [0])]))
    runner.submit(step(1, [row("a", 1, 1)]))
    assert runner.collect().rows[0].token_id == 1
    runner.submit(step(2, [row("a", 2, 1)]))
    assert [runner.collect().rows[0].token_id for _ in range(2)] == [2, 3]


def test_new_blocks_are_zeroed_before_use_and_others_left_alone(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    run(runner, step(0, [row("a", 0, 1, [3, 5])], [request("a", [0])]))
    for sums in runners.block_sums(runner):
        assert sums == [0.0 if block in (3, 5) else 4.0 for block in range(12)]


def test_logprobs_as_many_as_each_row_wants(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    new = [request("a", [0], logprobs=2), request("b", [1]), request("c", [2], logprobs=0)]
    a, b, c = run(runner, step(0, [row("a", 0, 1, [0]), row("b", 0, 1, [1]), row("c", 0, 1, [2])], new))
    log_sum = np.log(np.exp(4) + np.exp(2) + 4)
    assert a.logprobs is not None
    assert (a.logprobs.token_ids, a.logprobs.ranks) == ((1, 1, 2), (1, 1, 2))
    assert a.logprobs.logprobs == pytest.approx([4 - log_sum, 4 - log_sum, 2 - log_sum])
    assert b.logprobs is None
    assert c.logprobs is not None
    assert (c.logprobs.token_ids, c.logprobs.ranks) == ((3,), (1,))


def test_prompt_logprobs_chunk_by_chunk(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    new = [request("a", [0, 1, 3, 3], prompt_logprobs=1)]
    (first,) = run(runner, step(0, [row("a", 0, 2, [0], samples=False)], new))
    (second,) = run(runner, step(1, [row("a", 2, 2)]))
    assert [entry.token_ids for entry in first.prompt_logprobs] == [(1, 1), (3, 2)]
    assert [entry.ranks for entry in first.prompt_logprobs] == [(1, 1), (2, 1)]
    # After 3, tokens 4 and 5 score most; 0, 1, 2 and 3 all score 0, and 3 is the last of them.
    assert [(entry.token_ids, entry.ranks) for entry in second.prompt_logprobs] == [((3, 4), (6, 1))]
    assert second.token_id == 4


def test_prompt_logprobs_alone_without_any_output(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    new = [request("a", [0, 1], max_tokens=0, prompt_logprobs=0)]
    (result,) = run(runner, step(0, [row("a", 0, 2, [0], samples=False)], new))
    assert [entry.token_ids for entry in result.prompt_logprobs] == [(1,)]
    assert result.token_id is None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_broken_logits_fail_their_row_alone(runners: BigramRunners, bad: float) -> None:
    table = CYCLE.clone()
    table[2, 5] = bad
    runner = runners(table)
    new = [request("a", [0]), request("b", [2], temperature=1.0, logprobs=1), request("c", [2, 4], prompt_logprobs=0)]
    a, b, c = run(runner, step(0, [row("a", 0, 1, [0]), row("b", 0, 1, [1]), row("c", 0, 2, [2])], new))
    assert (a.token_id, a.error) == (1, None)
    for result in (b, c):
        assert result.error is not None
        assert "position 1 are not numbers" in result.error
        assert (result.token_id, result.logprobs, result.prompt_logprobs) == (None, None, ())


def test_a_failed_request_scheduled_once_more_fails_again_and_harms_nobody(runners: BigramRunners) -> None:
    table = CYCLE.clone()
    table[2, 5] = torch.nan
    runner = runners(table)
    runner.submit(step(0, [row("a", 0, 1, [0]), row("b", 0, 1, [1])], [request("a", [0]), request("b", [2])]))
    runner.submit(step(1, [row("a", 1, 1), row("b", 1, 1)]))
    first, second = runner.collect(), runner.collect()
    assert [result.token_id for result in (first.rows[0], second.rows[0])] == [1, 2]
    assert all(output.rows[1].error is not None for output in (first, second))
    (again,) = run(runner, step(2, [row("b", 0, 1, [2])], [request("b", [1])], dropped=["b"]))
    assert (again.token_id, again.error) == (2, None)


def test_a_step_that_fails_as_a_whole_does_not_stop_the_next(runners: BigramRunners) -> None:
    runner = runners(CYCLE)
    run(runner, step(0, [row("a", 0, 1, [0])], [request("a", [0])]))
    with pytest.raises(InvariantError):
        runner.submit(step(1, [row("b", 0, 9, [1])], [request("b", [1])]))
    assert run(runner, step(2, [row("a", 1, 1)], dropped=["b"]))[0].token_id == 2


def test_resumed_after_preemption_the_same_tokens(runners: BigramRunners) -> None:
    params = {"temperature": 1.5, "frequency_penalty": 0.4, "repetition_penalty": 1.1, "seed": 3}
    straight = runners(CYCLE)
    tokens = [run(straight, step(0, [row("a", 0, 2, [0, 1, 2])], [request("a", [0, 1], **params)]))[0].token_id]
    tokens += [run(straight, step(n, [row("a", n + 1, 1)]))[0].token_id for n in range(1, 10)]
    for cut in range(1, 9):
        resumed = runners(CYCLE)
        new = [request("a", [0, 1], output=tokens[:cut], **params)]
        output = [run(resumed, step(0, [row("a", 0, 2 + cut, [5, 4, 3])], new))[0].token_id]
        output += [run(resumed, step(n, [row("a", n + 1 + cut, 1)]))[0].token_id for n in range(1, 10 - cut)]
        assert tokens[:cut] + output == tokens
