"""Packing, through unpacking: a row of a packed matrix is the row that was stored."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda import _native
from pagoda.loading.checkpoint import StoredTensor
from pagoda.planning.formats import FORMATS
from pagoda.quantization import dequantize
from tests.native.programs import unpacked
from tests.quantization.test_dequantize import fill_codes, random_tensor


def packed(threads: _native.Threads, *segments: StoredTensor) -> _native.Matrix:
    in_features = segments[0].info.shape[1]
    return _native.Matrix(threads, in_features, [(stored.info.format, stored.data) for stored in segments])


# Value = scale × integer, or scale × code + minimum in the reference's order: nothing is rounded differently.
@pytest.mark.parametrize("rows", [1, 16, 37])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", FORMATS)
def test_every_row_is_what_was_stored(threads: _native.Threads, name: str, blocks: int, rows: int) -> None:
    stored = random_tensor(name, rows, blocks * FORMATS[name].block_elements, seed=blocks)
    assert np.array_equal(unpacked(packed(threads, stored)), dequantize(stored))


@pytest.mark.parametrize("columns", [1, 2, 15, 33, 160])
@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_dense_rows_have_any_width(threads: _native.Threads, name: str, columns: int) -> None:
    stored = random_tensor(name, 19, columns)
    assert np.array_equal(unpacked(packed(threads, stored)), dequantize(stored))


def test_segments_of_different_formats_follow_each_other(threads: _native.Threads) -> None:
    segments = [random_tensor(name, 5 + 7 * i, 256, seed=i) for i, name in enumerate(FORMATS)]
    wanted = np.concatenate([dequantize(stored) for stored in segments])
    assert np.array_equal(unpacked(packed(threads, *segments)), wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_a_matrix_that_is_packed_in_several_shares(threads: _native.Threads, name: str) -> None:
    stored = random_tensor(name, 1000, 1024, seed=3)
    matrix, wanted = packed(threads, stored), dequantize(stored)
    for row in (0, 15, 16, 499, 500, 991, 992, 999):
        assert np.array_equal(matrix.unpack(row), wanted[row])


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("name", [name for name, kind in FORMATS.items() if kind.block_elements > 1])
def test_codes_and_scales_at_both_ends(threads: _native.Threads, name: str, byte: int) -> None:
    stored = random_tensor(name, 16, 256)
    fill_codes(stored, byte)
    assert np.array_equal(unpacked(packed(threads, stored)), dequantize(stored))
