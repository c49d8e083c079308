"""Products with weights that are numbers of their own, against the same products in float64."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda import _native
from pagoda.quantization import dequantize
from tests.native.programs import Float32, SmallProgram
from tests.quantization.test_dequantize import random_tensor

DENSE = ("F32", "F16", "BF16")
MAX_ROWS = 37


def inputs(in_features: int) -> Float32:
    return np.random.default_rng(7).standard_normal((MAX_ROWS, in_features)).astype(np.float32)


def bias_of(out_features: int) -> Float32:
    return np.random.default_rng(8).standard_normal(out_features).astype(np.float32)


def product(
    threads: _native.Threads, matrix: _native.Matrix, x: Float32, rows: int = MAX_ROWS
) -> tuple[Float32, Float32]:
    """The first rows of x as the product reads them, and what it gives."""
    (form,) = matrix.input_forms
    program = SmallProgram(threads, max_tokens=MAX_ROWS)
    from_table = program.input(threads, x, form)
    out = program.tensor(matrix.out_features)
    program.native.linear(out, from_table, matrix)
    program.run([(0, rows)])
    return program.native.read(from_table, rows, form).copy(), program.native.read(out, rows).copy()


@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (45, 33), (450, 129)], ids=str)
@pytest.mark.parametrize("name", DENSE)
def test_within_what_rounding_each_step_allows(threads: _native.Threads, name: str, shape: tuple[int, int]) -> None:
    """k products and a bias are added one after the other: each addition and each product rounds by at most 2^-24."""
    stored, bias = random_tensor(name, *shape), bias_of(shape[0])
    matrix = _native.Matrix(threads, shape[1], [(name, stored.data)], bias)
    x, y = product(threads, matrix, inputs(shape[1]))
    weights, x64 = dequantize(stored).astype(np.float64), x.astype(np.float64)
    magnitudes = np.abs(x64) @ np.abs(weights).T + np.abs(bias)
    assert np.all(np.abs(x64 @ weights.T + bias - y) <= magnitudes * (shape[1] + 2) * 2.0**-24)


@pytest.mark.parametrize("name", DENSE)
def test_rows_do_not_depend_on_their_number(threads: _native.Threads, name: str) -> None:
    stored, x = random_tensor(name, 450, 129), inputs(129)
    matrix = _native.Matrix(threads, 129, [(name, stored.data)])
    _, all_rows = product(threads, matrix, x)
    for rows in range(1, MAX_ROWS):
        assert np.array_equal(product(threads, matrix, x, rows)[1], all_rows[:rows])


@pytest.mark.parametrize("name", DENSE)
def test_outputs_do_not_depend_on_their_neighbours(threads: _native.Threads, name: str) -> None:
    stored, x, bias = random_tensor(name, 450, 129), inputs(129), bias_of(450)
    _, together = product(threads, _native.Matrix(threads, 129, [(name, stored.data)], bias), x)
    for first, last in ((0, 1), (7, 23), (16, 64), (400, 450)):
        part = _native.Matrix(threads, 129, [(name, stored.data[first:last])], bias[first:last])
        assert np.array_equal(product(threads, part, x)[1], together[:, first:last])
