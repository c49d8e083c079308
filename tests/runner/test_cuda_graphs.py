"""Decode steps by graphs: which are captured, when, and that a graph finds everything where it was captured."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch

from pagoda.planning.cuda_workspace import decode_rows
from pagoda.runner.cuda_graphs import StepGraphs
from pagoda.runner.cuda_runner import CudaRunner
from tests.runner.bigram import BLOCK_SIZE, NUM_BLOCKS, cuda_bigram_runner
from tests.runner.fake_graphs import FakeBackend
from tests.runner.steps import request, row, step

# After 0 comes 1, after 1 comes 2, … and after 5 comes 0.
CYCLE = torch.eye(6).roll(1, 1)


def test_few_sizes_with_little_padding() -> None:
    rows = decode_rows(8192, 1000)
    assert rows[:6] == (1, 2, 4, 8, 16, 24)
    assert rows[-1] == 1000
    assert all(before < after for before, after in itertools.pairwise(rows))
    assert all((after - before - 1) / after < 1 / 5 for before, after in itertools.pairwise(rows) if after > 32)
    assert len(rows) < 60
    assert decode_rows(8192, 3) == (1, 2, 3)
    assert decode_rows(5, 100) == (1, 2, 4, 5)


def decode(runner: CudaRunner, number: int, names: str) -> list[int | None]:
    """A token more for each, which began in step 0 with one token."""
    runner.submit(step(number, [row(name, number, 1) for name in names]))
    return [result.token_id for result in runner.collect().rows]


def begin(runner: CudaRunner, names: str) -> None:
    """One token of each is computed. They have blocks 0 and 1, 2 and 3, …"""
    new = [request(name, [index]) for index, name in enumerate(names)]
    runner.submit(step(0, [row(name, 0, 1, [2 * index, 2 * index + 1]) for index, name in enumerate(names)], new))
    runner.collect()


def test_rows_that_pad_a_step_write_to_the_spare_block_alone() -> None:
    runner, program = cuda_bigram_runner(CYCLE)
    begin(runner, "abc")
    assert decode(runner, 1, "abc") == [2, 3, 4]
    spare = NUM_BLOCKS * BLOCK_SIZE
    assert program.slots == [[0, 8, 16, spare], [1, 9, 17, spare]]


def test_a_graph_reads_each_new_step_where_the_first_was() -> None:
    backend = FakeBackend()
    runner, _ = cuda_bigram_runner(CYCLE, backend=backend)
    begin(runner, "abc")
    assert [decode(runner, number, "abc") for number in range(1, 4)] == [[2, 3, 4], [3, 4, 5], [4, 5, 0]]
    # The first decode step runs eagerly and is captured; then one with a row less has a graph of its own.
    assert [graph.replays for graph in backend.graphs] == [2]
    assert runner.graphs.captured == [4]
    assert decode(runner, 4, "ca") == [1, 5]
    assert decode(runner, 5, "ca") == [2, 0]
    assert runner.graphs.captured == [2, 4]
    assert [graph.replays for graph in backend.graphs] == [2, 1]


def test_nothing_is_captured_while_somebody_waits_for_a_first_token() -> None:
    backend = FakeBackend()
    runner, _ = cuda_bigram_runner(CYCLE, backend=backend)
    runner.submit(step(0, [row("a", 0, 1, [0, 1])], [request("a", [0])]))
    runner.submit(step(1, [row("a", 1, 1)]))
    assert runner.collect().rows[0].token_id == 1
    runner.submit(step(2, [row("a", 2, 1), row("b", 0, 2, [2])], [request("b", [0, 1])]))
    runner.collect()
    runner.submit(step(3, [row("a", 3, 1), row("b", 2, 1)]))
    runner.collect()
    assert backend.graphs == []
    runner.submit(step(4, [row("a", 4, 1), row("b", 3, 1)]))
    assert runner.graphs.captured == [1]


def test_what_is_used_most_is_captured_first_one_at_a_time() -> None:
    graphs = StepGraphs(FakeBackend())
    for rows in (8, 4, 4, 2):
        graphs.run(rows, lambda: None)
    captured = []
    while graphs.has_more:
        graphs.capture_one()
        captured.append(graphs.captured)
    assert captured == [[4], [4, 8], [2, 4, 8]]


def test_where_capturing_fails_steps_run_eagerly_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    runner, _ = cuda_bigram_runner(CYCLE, backend=FakeBackend(fails=True))
    begin(runner, "abc")
    with caplog.at_level(logging.WARNING):
        assert [decode(runner, number, "abc") for number in (1, 2)] == [[2, 3, 4], [3, 4, 5]]
        assert decode(runner, 3, "a") == [4]
    assert runner.graphs.problem == (
        "a decode step of 4 rows could not be captured: operation not permitted when stream is capturing"
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"{runner.graphs.problem}; steps are launched kernel by kernel"
    ]
