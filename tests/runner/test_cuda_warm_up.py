"""Steps of padding before the first request: they touch nothing, and are what a runner can do at most."""

from __future__ import annotations

import pytest
import torch

from pagoda.runner.cuda_graphs import StepGraphs
from pagoda.runner.cuda_warm_up import MOST_TOKENS, mixed_lengths, padding_step, sampling_batches
from tests.runner.cuda_tiny import cuda_runner, reference_runner, short_text
from tests.runner.fake_graphs import FakeBackend


@pytest.mark.parametrize(
    "limits", [(1, 1, 9), (2, 8, 1), (16, 1, 5), (16, 3, 4), (16, 8, 1), (8192, 256, 70), (8192, 2, 9999)]
)
def test_mixed_steps_keep_the_limits(limits: tuple[int, int, int]) -> None:
    most_tokens, most_seqs, longest = limits
    steps = list(mixed_lengths(*limits))
    for lengths in steps:
        assert sum(lengths) <= most_tokens
        assert len(lengths) <= most_seqs
        assert min(lengths) >= 1
        assert max(lengths) <= longest
    assert len(steps[0]) == 1
    assert sum(steps[-1]) == min(most_tokens, MOST_TOKENS, max(1, most_seqs - 1) * longest + (most_seqs > 1))
    assert len(steps) < 16


def test_a_step_of_padding_keeps_to_the_spare_block() -> None:
    batch = padding_step([5, 1], spare_block=7, block_size=4)
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 0]
    assert batch.slot_mapping.tolist() == [28, 29, 30, 31, 28, 28]
    assert batch.query_start_loc.tolist() == [0, 5, 6]
    assert batch.seq_lens.tolist() == [5, 1]
    assert batch.block_table.tolist() == [[7, 7], [7, 7]]
    assert batch.logit_rows.tolist() == [4, 5]
    assert batch.new_blocks.tolist() == [7]


def test_each_kernel_that_chooses_a_token_is_asked_for() -> None:
    kinds = {(batch.has_edits, len(batch.random_rows)) for batch in sampling_batches()}
    assert kinds == {(False, 0), (True, 0), (False, 1), (True, 1)}


@torch.inference_mode()
def test_warming_up_changes_no_block_of_a_request_s_and_no_text(tiny_model: str) -> None:
    runner = cuda_runner(tiny_model)
    runner.graphs = StepGraphs(FakeBackend())
    runner._model.cache.storage.fill_(3)
    runner.warm_up(1)
    assert runner.graphs.captured == [1]
    for part in (part for layer in runner._model.cache.layers for part in layer):
        assert (part[:-1] == 3).all()
        assert (part[-1] != 3).any()
    assert short_text(runner) == short_text(reference_runner(tiny_model))
