"""The GPU's sampler chooses what the torch sampler chooses, row by row, whatever is asked for.

In the interpreter exp is numpy's: of 2,000,000 weights 2 differed from torch's, by 1 in 2**40. A choice would differ with them
only if the uniform number fell into that gap, once in 10**10 or so: no row here may differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from pagoda.errors import InvalidValueError
from pagoda.planning.cuda_sampling import GATHERED, edit_capacity, sampler_bytes
from pagoda.sampling import cuda_sampler
from pagoda.sampling.batch import Edits, SamplingBatch
from pagoda.sampling.cuda.choice import nucleus
from pagoda.sampling.cuda.edit_arrays import EditArrays
from pagoda.sampling.cuda.splits import Splits
from pagoda.sampling.cuda_sampler import CudaSampler
from pagoda.sampling.state import SamplingState
from pagoda.sampling.torch_sampler import sample
from tests.sampling.requests import new_state

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MAX_ROWS = 16
VOCAB = 700
SAMPLERS = {vocab_size: CudaSampler(DEVICE, MAX_ROWS, vocab_size, 4) for vocab_size in (4, VOCAB, 3000)}

# Each parameter alone, and mixed.
ASKED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.01},
    {"top_k": 1},
    {"top_k": 4, "temperature": 3.0},
    {"top_k": 40},
    {"top_k": 10**6},
    {"top_p": 0.8},
    {"top_p": 1e-9},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 300, "top_p": 0.95, "min_p": 0.001},
    {"top_k": 20, "top_p": 0.5, "temperature": 2.0},
    {"temperature": 0.0, "repetition_penalty": 1.3, "presence_penalty": 0.5, "logit_bias": {1: 3.0}},
    {"repetition_penalty": 0.5, "frequency_penalty": -2.0, "logit_bias": {1: 3.0, 7: -100.0}, "min_tokens": 9},
    {"presence_penalty": 1.5, "top_p": 0.9, "temperature": 0.7},
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small vocabulary has several, and the last one a tail."""
    for name, size in (("PEAK_BLOCK", 128), ("HISTOGRAM_BLOCK", 512), ("EDIT_BLOCK", 4)):
        monkeypatch.setattr(cuda_sampler, name, size)


def launched(logits: torch.Tensor, batch: SamplingBatch, vocab_size: int) -> tuple[list[int], list[bool]]:
    """Token ids and broken rows. The logits must be as they were afterwards."""
    mine = logits.to(DEVICE)
    before = mine.clone()
    token_ids = torch.full((len(logits),), -1, dtype=torch.int32, device=DEVICE)
    broken = torch.zeros(len(logits), dtype=torch.bool, device=DEVICE)
    SAMPLERS[vocab_size].launch(mine, batch, token_ids, broken)
    assert torch.equal(mine.view(torch.int32), before.view(torch.int32))
    return token_ids.tolist(), broken.tolist()


def expected(logits: torch.Tensor, batch: SamplingBatch, vocab_size: int) -> tuple[list[int], list[bool]]:
    token_ids, broken = sample(logits.to(DEVICE), batch, vocab_size)
    return token_ids.tolist(), broken.tolist()


def check(logits: torch.Tensor, states: Sequence[SamplingState], vocab_size: int = VOCAB) -> None:
    batch = SamplingBatch.of(states)
    assert launched(logits, batch, vocab_size) == expected(logits, batch, vocab_size)


def states_for(asked: Sequence[dict[str, Any]], seed: int) -> list[SamplingState]:
    ids = np.random.default_rng(seed).integers(0, 30, (len(asked), 12)).tolist()
    return [
        new_state(VOCAB, prompt=own[:6], output=own[6:], seed=seed + row, end_token_ids=frozenset({3, 8}), **each)
        for row, (each, own) in enumerate(zip(asked, ids, strict=True))
    ]


def normal(rows: int, width: int, scale: float, seed: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize(
    ("scale", "step", "asked"), [(4.0, None, ASKED), (4.0, 1.0, ASKED[::2]), (1e-3, None, ASKED[1::2])]
)
def test_every_parameter(scale: float, step: float | None, asked: list[dict[str, Any]]) -> None:
    """With peaks, with ties, and where all tokens are nearly equal."""
    # Padded: what lies beyond the vocabulary is larger than anything in it.
    logits = normal(len(asked), VOCAB + 20, scale, seed=5)
    if step:
        logits = (logits / step).round() * step
    logits[:, VOCAB:] = 1000.0
    check(logits, states_for(asked, seed=17))


def test_more_tokens_in_a_bin_than_are_gathered() -> None:
    asked = [{}, {"top_k": 2000}, {"top_p": 0.6}, {"top_k": 2500, "top_p": 0.9, "temperature": 100.0}]
    logits = normal(len(asked), 3000, 1e-3, seed=6)
    logits[0] = 1.25  # nothing but ties
    logits[1] = (logits[1] * 1000).round() / 1000
    assert len(torch.unique(logits[1])) * 4 < GATHERED
    check(logits, [new_state(3000, seed=row, **each) for row, each in enumerate(asked)], 3000)


def test_numbers_on_the_edge_of_two_tokens() -> None:
    batch = SamplingBatch.of([new_state(3000, top_p=top_p) for top_p in (1.0, 1.0, 1.0, 0.5)])
    numbers = dataclasses.replace(batch, uniforms=np.array([0.0, 0.25, np.nextafter(1, 0), np.nextafter(1, 0)]))
    token_ids, _ = launched(torch.zeros(4, 3000), numbers, 3000)
    assert token_ids == [0, 750, 2999, 1499]


def test_the_largest_tokens_each_in_a_chunk_of_its_own() -> None:
    logits = torch.full((3, VOCAB), -20.0)
    logits[:, [450, 5, 300, 150]] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    batch = SamplingBatch.of([new_state(VOCAB, top_k=top_k, temperature=100.0) for top_k in (2, 3, 4)])
    last = dataclasses.replace(batch, uniforms=np.full(3, np.nextafter(1, 0)))
    assert launched(logits, last, VOCAB)[0] == [5, 300, 150]


@triton.jit
def nuclei(top_p, totals, out):
    at = tl.program_id(0)
    tl.store(out + at, nucleus(tl.load(top_p + at), tl.load(totals + at)))


def test_a_nucleus_of_weights_that_float64_cannot_tell_apart() -> None:
    random = np.random.default_rng(3)
    totals = [2**62 - 1, 2**53 + 1, 2**40, *(int(2 ** random.uniform(40, 62)) | 1 for _ in range(40))]
    top_p = [*random.uniform(0.0, 1.0, len(totals) - 2), np.nextafter(1.0, 0.0), 1e-300]
    out = torch.zeros(len(totals), dtype=torch.int64, device=DEVICE)
    nuclei[len(totals),](
        torch.tensor(top_p, dtype=torch.float64, device=DEVICE), torch.tensor(totals, device=DEVICE), out
    )
    for bound, total, share in zip(out.tolist(), totals, top_p, strict=True):
        assert float(bound) >= share * float(total) > float(bound - 1)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_infinities_among_numbers() -> None:
    logits = normal(4, VOCAB, 3.0, seed=8)
    logits[0, 3:] = -torch.inf
    logits[1, ::2] = -torch.inf
    logits[2, 5:] = -3e38
    logits[3] = -torch.inf
    logits[3, 77] = 2.0
    check(logits, [new_state(VOCAB, seed=row, top_k=400 * (row % 2)) for row in range(4)])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_rows_are_marked_and_their_neighbours_are_not_touched(temperature: float) -> None:
    logits = normal(8, VOCAB, 3.0, seed=9)
    # Rows 4 to 7 bar the very token that tells, or edit it.
    states = [
        new_state(VOCAB, seed=row, temperature=temperature, min_tokens=row // 4, end_token_ids=frozenset({17, 20}))
        for row in range(8)
    ]
    batch = SamplingBatch.of(states)
    whole = expected(logits, batch, VOCAB)
    logits[1, 17], logits[2, 17], logits[3] = torch.nan, torch.inf, -torch.inf
    logits[5, 17], logits[6, 20], logits[7] = torch.nan, torch.inf, -torch.inf
    token_ids, broken = launched(logits, batch, VOCAB)
    assert broken == [False, True, True, True, False, True, True, True]
    assert (token_ids[0], token_ids[4]) == (whole[0][0], whole[0][4])
    assert all(0 <= token_id < VOCAB for token_id in token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_all_tokens_barred(temperature: float) -> None:
    barred = {"end_token_ids": frozenset({0, 1, 2, 3}), "min_tokens": 5, "temperature": temperature}
    batch = SamplingBatch.of([new_state(4, **barred)])
    assert launched(normal(1, 4, 1.0, seed=1), batch, 4) == ([0], [False])


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_numbers_at_the_limits() -> None:
    logits = torch.tensor([[1.0, 3e38, -3e38, 2.0]]).repeat(5, 1)
    asked: list[dict[str, Any]] = [
        {"temperature": 5e-324},
        {"temperature": 100.0},
        {"prompt": [1], "repetition_penalty": 0.01},
        {"prompt": [1, 2], "repetition_penalty": 100.0, "logit_bias": {1: -100.0}},
        {"temperature": 0.0, "prompt": [1], "repetition_penalty": 0.01, "logit_bias": {3: 1.0}},
    ]
    check(logits, [new_state(4, seed=row, **each) for row, each in enumerate(asked)], 4)


def test_negative_zero_ties_with_zero() -> None:
    logits = torch.tensor([[-0.0, 0.0, -1.0, 0.0]]).repeat(3, 1)
    batch = SamplingBatch.of([new_state(4, temperature=0.0), new_state(4, top_k=1), new_state(4, top_k=2)])
    last = dataclasses.replace(batch, uniforms=np.array([0.9, 0.9]))
    assert launched(logits, last, 4)[0] == [0, 0, 1]


def test_alone_and_in_a_crowd_the_same_token() -> None:
    logits = normal(3, VOCAB, 2.0, seed=12)
    states = states_for(ASKED[-3:], seed=3)
    alone = [
        launched(logits[row : row + 1], SamplingBatch.of([state]), VOCAB)[0][0] for row, state in enumerate(states)
    ]
    assert launched(logits, SamplingBatch.of(states), VOCAB)[0] == alone


def test_more_edits_than_there_is_room_for_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = normal(6, VOCAB, 2.0, seed=13)
    states = states_for([{"repetition_penalty": 1.3, "temperature": row % 2 * 1.0} for row in range(6)], seed=4)
    batch = SamplingBatch.of(states)
    assert batch.repetition is not None
    monkeypatch.setattr(SAMPLERS[VOCAB], "_edit_capacity", len(batch.repetition.ids) // 3)
    assert len(EditArrays.of(batch).slices(len(batch.repetition.ids) // 3)) > 2
    assert launched(logits, batch, VOCAB) == expected(logits, batch, VOCAB)


def test_slices_hold_as_much_as_fits() -> None:
    edits = Edits(np.array([0, 0, 1, 3, 3, 3, 4]), np.arange(7), np.zeros(7, np.float32))
    greedy = SamplingBatch.of([new_state(9, temperature=0.0)] * 6)
    changes = EditArrays.of(dataclasses.replace(greedy, repetition=edits, bar=edits))
    assert changes.slices(6) == [(0, 3), (3, 4), (4, 6)]
    assert changes.slices(100) == [(0, 6)]


def test_memory_is_what_the_plan_says() -> None:
    for vocab_size, sampler in SAMPLERS.items():
        assert sampler.num_bytes <= sampler_bytes(MAX_ROWS, vocab_size) <= sampler.num_bytes + 1024
    assert sampler_bytes(256, 151_936) < 64 << 20
    assert edit_capacity(1, 1000) >= 4 * 1000


def test_too_many_tokens_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="vocab_size"):
        CudaSampler(DEVICE, 1, (1 << 22) + 1, 4)


def test_splits_cover_the_vocabulary() -> None:
    for rows in (1, 3, 64, 5000):
        for vocab_size in (1, 512, 513, 32_000, 151_936):
            split = Splits.of(rows, vocab_size, 512, 132)
            assert (split.number - 1) * split.blocks * 512 < vocab_size <= split.number * split.blocks * 512
            assert split.number <= 64
