"""On the CPU a request's numbers are its own: tokens and log-probabilities are equal to the last bit, in any company."""

from __future__ import annotations

import random
from functools import cache

import pytest

from pagoda import _native
from pagoda.core.request import Request
from tests.engine.exact import (
    ALONE,
    LLAMA,
    WINDOWED,
    Circumstances,
    MemoryCheckpoint,
    Told,
    make_requests,
    request,
    run,
)
from tests.soak import soak_count

SCHEDULES = soak_count(40)
INSTRUCTION_SETS = _native.instruction_sets()
# Matrices of a model are stored in these formats, one after the other in turn.
MODELS = {
    "f32": (LLAMA, ("F32",), None),
    "bf16": (LLAMA, ("BF16",), None),
    "q4_0": (LLAMA, ("Q4_0",), None),
    "q8_0 windowed": (WINDOWED, ("Q8_0",), None),
    "q4_1 and f16": (LLAMA, ("Q4_1", "F16", "Q4_1"), None),
    "k-quants": (WINDOWED, ("Q4_K", "Q6_K", "Q5_K"), None),
    "fifth bits": (LLAMA, ("Q5_0", "Q5_1"), None),
    "int4 on the fly": (LLAMA, ("BF16",), "int4"),
    "int8 cache": (LLAMA, ("Q4_0",), None, "int8"),
    "int8 cache windowed": (WINDOWED, ("BF16",), None, "int8"),
    "int8 cache alone": (ALONE, ("Q8_0",), None, "int8"),
}


@cache
def model(name: str) -> MemoryCheckpoint:
    return MemoryCheckpoint(*MODELS[name])


@cache
def alone(name: str, instruction_set: str, seed: int) -> dict[int, Told]:
    """Each request by itself, its prompt in one piece, with one thread."""
    told: dict[int, Told] = {}
    for one in make_requests(seed):
        told |= run(model(name), instruction_set, Circumstances(), [one]).told
    return told


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", MODELS)
def test_any_schedule_gives_the_same_numbers(name: str, instruction_set: str) -> None:
    for seed in range(SCHEDULES):
        numbers = random.Random(f"{name} {seed}")
        requests = make_requests(seed % 3)
        circumstances = Circumstances(
            threads=(1, 2, 4)[seed % 3 if seed else 1],
            num_blocks=numbers.choice((12, 16, 64)),  # the longest request takes 10
            max_num_seqs=numbers.randint(2, 9),
            max_batched_tokens=(budget := numbers.choice((9, 17, 33, 64, 100, 300))),
            prefill_chunk=numbers.randint(1, budget),
        )
        arrivals = [numbers.randrange(30) for _ in requests]
        crowd = run(model(name), instruction_set, circumstances, requests, arrivals)
        assert crowd.told == alone(name, instruction_set, seed % 3), circumstances


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_with_any_number_of_threads(threads: int, instruction_set: str) -> None:
    together = run(model("q4_0"), instruction_set, Circumstances(threads=threads), make_requests(0))
    assert together.told == alone("q4_0", instruction_set, 0)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_through_preemption(instruction_set: str) -> None:
    # Each takes 7 blocks in the end; all are let in, with 3 blocks each at first.
    def requests() -> list[Request]:
        return [request(number, 40, temperature=0.0 if number % 2 else 0.9, max_tokens=60) for number in range(4)]

    lone = {}
    for one in requests():
        lone |= run(model("bf16"), instruction_set, Circumstances(), [one]).told
    tight = Circumstances(num_blocks=16, max_batched_tokens=64, prefill_chunk=24)
    crowd = run(model("bf16"), instruction_set, tight, requests())
    assert crowd.num_preemptions > 0
    assert crowd.told == lone


def test_the_comparison_sees_a_last_bit() -> None:
    """With the last bits of one matrix's weights turned, log-probabilities differ: equality above is no accident."""
    changed = MemoryCheckpoint(LLAMA, ("F32",))
    changed.read("model.layers.1.mlp.down_proj.weight").data[:, ::4] ^= 1
    mine, theirs = (
        run(weights, INSTRUCTION_SETS[0], Circumstances(), [request(0, 5, logprobs=1, max_tokens=8)]).told[0]
        for weights in (changed, model("f32"))
    )
    assert mine.token_ids == theirs.token_ids
    assert mine.logprobs != theirs.logprobs
