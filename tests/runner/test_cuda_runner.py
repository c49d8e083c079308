"""The GPU's runner with a step in flight: whose results are whose, and what a failure leaves alone."""

from __future__ import annotations

import pytest
import torch

from pagoda.errors import InvariantError
from tests.runner.bigram import cuda_bigram_runner
from tests.runner.steps import key, request, row, step

# After 0 comes 1, after 1 comes 2, … and after 5 comes 0.
CYCLE = torch.eye(6).roll(1, 1)


def test_results_of_a_dropped_request_are_not_those_of_the_next_with_its_name() -> None:
    table = CYCLE.clone()
    table[2, 5] = torch.nan
    runner, _ = cuda_bigram_runner(table)
    runner.submit(step(0, [row("a", 0, 1, [0])], [request("a", [2])]))
    runner.submit(step(1, [row("a", 0, 2, [1])], [request("a", [4, 0])], dropped=["a"]))
    assert runner.collect().rows[0].error is not None
    assert runner.collect().rows[0] == (key("a"), 1, None, (), None)
    runner.submit(step(2, [row("a", 2, 1)]))
    assert runner.collect().rows[0].token_id == 2


def test_a_step_that_is_refused_leaves_the_one_in_flight_alone() -> None:
    runner, _ = cuda_bigram_runner(CYCLE)
    runner.submit(step(0, [row("a", 0, 1, [0])], [request("a", [0])]))
    with pytest.raises(InvariantError):
        runner.submit(step(1, [row("b", 0, 9, [1])], [request("b", [1])]))
    assert runner.collect().rows[0].token_id == 1
    runner.submit(step(2, [row("a", 1, 1)], dropped=["b"]))
    assert runner.collect().rows[0].token_id == 2


def test_a_forward_pass_that_fails_leaves_the_step_in_flight_alone() -> None:
    runner, program = cuda_bigram_runner(CYCLE)
    runner.submit(step(0, [row("a", 0, 1, [0])], [request("a", [0])]))
    run, program.run = program.run, None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        runner.submit(step(1, [row("b", 0, 1, [1])], [request("b", [1])]))
    program.run = run  # type: ignore[method-assign]
    assert runner.collect().rows[0].token_id == 1
    runner.submit(step(2, [row("a", 1, 1)], dropped=["b"]))
    assert runner.collect().rows[0].token_id == 2


def test_results_that_cannot_be_had_are_the_step_s_own_failure() -> None:
    runner, _ = cuda_bigram_runner(CYCLE)
    runner.submit(step(0, [row("a", 0, 1, [0])], [request("a", [0])]))
    arrived, runner._chosen.arrived = runner._chosen.arrived, None  # type: ignore[assignment, method-assign]
    runner.submit(step(1, [row("b", 0, 1, [1])], [request("b", [1])]))
    runner._chosen.arrived = arrived  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        runner.collect()
    assert runner.collect().rows[0].token_id == 2


def test_a_token_on_its_way_reaches_a_row_in_any_place() -> None:
    runner, _ = cuda_bigram_runner(CYCLE)
    new = [request(name, [index]) for index, name in enumerate("abc")]
    runner.submit(step(0, [row(name, 0, 1, [index]) for index, name in enumerate("abc")], new))
    runner.submit(step(1, [row("c", 1, 1), row("d", 0, 3, [3]), row("a", 1, 1)], [request("d", [0, 0, 4])]))
    assert [each.token_id for each in runner.collect().rows] == [1, 2, 3]
    assert [each.token_id for each in runner.collect().rows] == [4, 5, 2]
