"""The sizes that planning works with are those of the native module."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda import _native
from pagoda.planning.formats import FORMATS
from pagoda.planning.native_formats import FORMS, Form, PackedFormat, form_bytes, input_form, packed_bytes

SHAPES = [(1, 256), (16, 512), (17, 768), (100, 2048), (48, 8192)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_packed_matrices(name: str, shape: tuple[int, int]) -> None:
    assert packed_bytes(name, *shape) == _native.packed_bytes(name, *shape)


@pytest.mark.parametrize("in_features", [1, 7, 31, 33, 576])
@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_dense_matrices_of_any_width(name: str, in_features: int) -> None:
    assert packed_bytes(name, 20, in_features) == _native.packed_bytes(name, 20, in_features)


@pytest.mark.parametrize("rows", [1, 3, 512])
@pytest.mark.parametrize("width", [32, 64, 576, 2048, 11008])
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_activations(form: Form, width: int, rows: int) -> None:
    assert form_bytes(form, width, rows) == _native.form_bytes(form, width, rows)


@pytest.mark.parametrize("form", ["f32", "bf16"])
def test_rows_of_any_width(form: Form) -> None:
    for width in (1, 15, 33, 257):
        assert form_bytes(form, width, 3) == _native.form_bytes(form, width, 3)


@pytest.mark.parametrize("name", FORMATS)
def test_input_forms(name: str) -> None:
    assert input_form(name) == _native.input_form(name)


@pytest.mark.parametrize("biased", [False, True])
def test_a_matrix_of_several_segments_takes_the_sum_of_them_and_their_biases(biased: bool) -> None:
    threads = _native.Threads(1, _native.instruction_sets()[0])
    segments = [(name, rows, np.zeros((rows, 96 // FORMATS[name].block_elements * FORMATS[name].block_bytes), np.uint8))
                for name, rows in (("Q8_0", 20), ("Q4_0", 16), ("F32", 3))]  # fmt: skip
    bias = np.zeros(39, np.float32) if biased else None
    matrix = _native.Matrix(threads, 96, [(name, data) for name, _, data in segments], bias)
    weights = sum(PackedFormat(name).tensor_bytes((rows, 96)) for name, rows, _ in segments)
    biases = sum(PackedFormat("F32").tensor_bytes((rows,)) for _, rows, _ in segments)
    assert matrix.num_bytes == weights + (biases if biased else 0)
    threads.close()
