"""Products with quantized weights: within rounding of the same products in float64, and the same bits in every company."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda import _native
from pagoda.loading.checkpoint import StoredTensor
from pagoda.planning.formats import FORMATS
from pagoda.quantization import dequantize
from tests.native.programs import Float32, SmallProgram
from tests.quantization.test_dequantize import fill_codes, random_tensor

QUANTIZED = tuple(name for name, kind in FORMATS.items() if kind.block_elements > 1)
MAX_ROWS = 100


def inputs(in_features: int) -> Float32:
    """Groups of 32 of very different sizes, one of them zeros."""
    random = np.random.default_rng(7)
    x = random.standard_normal((MAX_ROWS, in_features // 32, 32)) * np.exp(
        random.standard_normal((MAX_ROWS, in_features // 32, 1))
    )
    x[1, 0] = 0
    return x.reshape(MAX_ROWS, in_features).astype(np.float32)


def bias_of(out_features: int) -> Float32:
    return np.random.default_rng(8).standard_normal(out_features).astype(np.float32)


def packed(threads: _native.Threads, stored: StoredTensor, bias: Float32 | None = None) -> _native.Matrix:
    return _native.Matrix(threads, stored.info.shape[1], [(stored.info.format, stored.data)], bias)


def product(threads: _native.Threads, matrix: _native.Matrix, x: Float32, rows: int) -> tuple[Float32, Float32]:
    """The first rows of x as int8 codes and scales have them, and their products."""
    program = SmallProgram(threads, max_tokens=MAX_ROWS)
    from_table = program.input(threads, x, "q8")
    out = program.tensor(matrix.out_features)
    program.native.linear(out, from_table, matrix)
    program.run([(0, rows)])
    return program.native.read(from_table, rows, "q8").copy(), program.native.read(out, rows).copy()


def assert_within_rounding(x: Float32, y: Float32, weights: Float32, bias: Float32) -> None:
    """Each group of 32 rounds three times and reads a rounded x: by at most 2^-24 of the magnitudes that are added."""
    x64, weights64 = x.astype(np.float64), weights.astype(np.float64)
    magnitudes = np.abs(x64) @ np.abs(weights64).T + np.abs(bias)
    assert np.all(np.abs(x64 @ weights64.T + bias - y) <= magnitudes * (3 * x.shape[1] / 32 + 2) * 2.0**-24)


@pytest.mark.parametrize("shape", [(1, 1), (45, 2), (450, 3)], ids=str)
@pytest.mark.parametrize("name", QUANTIZED)
def test_within_what_rounding_each_step_allows(threads: _native.Threads, name: str, shape: tuple[int, int]) -> None:
    out_features, blocks = shape
    stored = random_tensor(name, out_features, blocks * FORMATS[name].block_elements)
    bias = bias_of(out_features)
    x, y = product(threads, packed(threads, stored, bias), inputs(stored.info.shape[1]), MAX_ROWS)
    assert_within_rounding(x, y, dequantize(stored), bias)


@pytest.mark.parametrize("name", QUANTIZED)
def test_rows_do_not_depend_on_their_number(threads: _native.Threads, name: str) -> None:
    stored = random_tensor(name, 90, 512)
    matrix, x = packed(threads, stored), inputs(512)
    _, together = product(threads, matrix, x, MAX_ROWS)
    for rows in (*range(1, 34), 47, 48, 49, 95, 96, 97):
        assert np.array_equal(product(threads, matrix, x, rows)[1], together[:rows])


@pytest.mark.parametrize("name", QUANTIZED)
def test_outputs_do_not_depend_on_their_neighbours(threads: _native.Threads, name: str) -> None:
    stored, bias, x = random_tensor(name, 450, 256), bias_of(450), inputs(256)
    _, together = product(threads, packed(threads, stored, bias), x, MAX_ROWS)
    for first, last in ((0, 1), (7, 23), (16, 64), (400, 450)):
        part = _native.Matrix(threads, 256, [(name, stored.data[first:last])], bias[first:last])
        assert np.array_equal(product(threads, part, x, MAX_ROWS)[1], together[:, first:last])


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("name", QUANTIZED)
def test_the_largest_codes_of_both_sides(threads: _native.Threads, name: str, byte: int) -> None:
    """Sums of 32 products in integers: nothing saturates where all codes, and all inputs, are at an end."""
    stored = random_tensor(name, 16, 512)
    fill_codes(stored, byte)
    signs = np.where(np.random.default_rng(9).random((MAX_ROWS, 512)) < 0.5, np.float32(-1), np.float32(1))
    signs[0], signs[1] = 1, -1
    bias = bias_of(16)
    x, y = product(threads, packed(threads, stored, bias), signs, MAX_ROWS)
    assert_within_rounding(x, y, dequantize(stored), bias)


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_broken_row_breaks_no_other(threads: _native.Threads, name: str) -> None:
    matrix, x = packed(threads, random_tensor(name, 33, 512)), inputs(512)
    _, wanted = product(threads, matrix, x, MAX_ROWS)
    x[3, 40], x[17, 500] = np.nan, np.inf
    _, found = product(threads, matrix, x, MAX_ROWS)
    broken = np.isin(np.arange(MAX_ROWS), (3, 17))
    assert np.isnan(found[broken]).all()
    assert np.array_equal(found[~broken], wanted[~broken])
