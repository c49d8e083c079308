"""The pool of workers: many jobs, callers at the same time, an end, and no work while there is none."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from pagoda import _native
from tests.native.programs import SmallProgram, float_matrix, unpacked
from tests.soak import soak_count

NUMBERS = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)


def pool(count: int) -> _native.Threads:
    return _native.Threads(count, "portable")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_many_jobs_after_each_other(count: int) -> None:
    threads = pool(count)
    assert (threads.count, threads.instruction_set) == (count, "portable")
    for _ in range(soak_count(2000)):
        matrix = float_matrix(threads, NUMBERS)
    assert np.array_equal(unpacked(matrix), NUMBERS)
    threads.close()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_many_steps_of_many_commands(count: int) -> None:
    """Each command reads what the one before it wrote: a worker that runs ahead would be seen."""
    threads = pool(count)
    program = SmallProgram(threads)
    x = program.input(threads, NUMBERS[:, :32].copy())
    for _ in range(10):
        y = program.tensor(32)
        program.native.add(y, x, x)
        x = y
    for _ in range(soak_count(1000)):
        program.run([(0, 64)])
        assert np.array_equal(program.native.read(x, 64), NUMBERS[:, :32] * 1024)
    threads.close()


def test_callers_at_the_same_time_wait_for_each_other() -> None:
    threads = pool(2)
    results: list[bool] = []

    def caller(factor: float) -> None:
        numbers = NUMBERS * np.float32(factor)
        results.extend(np.array_equal(unpacked(float_matrix(threads, numbers)), numbers) for _ in range(20))

    callers = [threading.Thread(target=caller, args=(factor,)) for factor in (1.0, 2.0, 3.0)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(timeout=60)
    assert results == [True] * 60
    threads.close()


def test_an_idle_pool_takes_no_processor_time() -> None:
    """Three workers that only spun would take thirty times as much as is allowed."""
    threads = pool(4)
    float_matrix(threads, NUMBERS)
    before = time.process_time()
    threading.Event().wait(0.5)
    assert time.process_time() - before < 0.05
    threads.close()


def test_closing() -> None:
    threads = pool(3)
    float_matrix(threads, NUMBERS)
    threads.close()
    threads.close()
    with pytest.raises(RuntimeError, match="closed"):
        float_matrix(threads, NUMBERS)


@pytest.mark.parametrize(("count", "instruction_set"), [(0, "portable"), (-1, "portable"), (1, "avx9000")])
def test_pools_that_cannot_be(count: int, instruction_set: str) -> None:
    with pytest.raises(ValueError, match=r"count|instruction_set"):
        _native.Threads(count, instruction_set)
