"""The pool of workers: many jobs, callers at the same time, an end, and no work while there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

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


@pytest.mark.parametrize("second", ["run", "logits", "record"])
def test_a_program_is_for_one_caller_at_a_time(second: str) -> None:
    """Who comes second is refused, and the step of who came first is not harmed."""
    threads, rows = pool(2), np.arange(512 * 32, dtype=np.float32).reshape(512, 32)
    program = SmallProgram(threads)
    x, same = program.input(threads, rows), float_matrix(threads, np.eye(32, dtype=np.float32))
    y = program.tensor(32)
    for _ in range(200):  # long enough for the other one to come in the middle of it
        program.native.linear(y, x, same)
        x, y = y, x
    program.native.select_rows(y, x)
    program.native.logits_linear(y, same)
    # Each of these is wrong, whoever else calls: it is refused for that as long as nobody does.
    attempts: dict[str, Callable[[], object]] = {
        "run": lambda: program.run([(0, 513)]),
        "logits": lambda: program.native.logits(512),
        "record": lambda: program.native.add(x, x, x),
    }
    results: list[bool] = []
    refused: list[str] = []

    def first() -> None:
        while not refused and len(results) < 100:
            try:
                logits = program.run([(0, 512)])
            except RuntimeError as error:  # the other one was there before
                refused.append(str(error))
            else:
                results.append(np.array_equal(logits, rows[: len(logits)]))

    caller = threading.Thread(target=first)
    caller.start()
    while caller.is_alive() and not refused:
        try:
            attempts[second]()
        except (ValueError, IndexError):
            pass
        except RuntimeError as error:
            refused.append(str(error))
    caller.join()
    assert set(refused) == {"the program is in use: it is for one caller at a time"}
    assert all(results)
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
