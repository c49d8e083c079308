"""Each command of the native program against numpy, for every instruction set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pagoda import _native
from tests.native.programs import Float32, SmallProgram, bf16, float_matrix, stored, unpacked

COUNT = 37  # tokens: more than one item of a command has, and no whole number of panels
FORMS: tuple[_native.Form, ...] = ("f32", "bf16", "q8")


def numbers(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_close(found: Float32, expected: npt.ArrayLike, size: npt.ArrayLike = 1.0) -> None:
    """Within a few float32 roundings of numbers of that size."""
    assert np.all(np.abs(found - np.asarray(expected)) <= 4e-6 * np.asarray(size))


def assert_forms(program: SmallProgram, tensor: int, expected: Float32, rows: int = COUNT) -> None:
    """f32 close to expected; the other forms are those of the very same float32 numbers."""
    exact = program.native.read(tensor, rows)
    assert_close(exact, expected, 1 + np.abs(expected))
    assert np.array_equal(program.native.read(tensor, rows, "bf16"), bf16(exact))
    groups = exact.reshape(rows, -1, 32)
    steps = np.abs(groups).max(axis=2, keepdims=True) / 127
    codes = program.native.read(tensor, rows, "q8").reshape(groups.shape)
    assert np.all(np.abs(codes - groups) <= 0.501 * steps)


def product(x: Float32, weight: Float32) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """x times the transpose of weight, and the size of what was added up."""
    wide, turned = x.astype(np.float64), weight.astype(np.float64).T
    return wide @ turned, np.abs(wide) @ np.abs(turned)


def test_embed(threads: _native.Threads) -> None:
    program, table = SmallProgram(threads), numbers(COUNT, 96)
    out = program.tensor(96, *FORMS)
    program.native.embed(out, float_matrix(threads, table), 0.5)
    program.run([(0, COUNT)])
    assert_forms(program, out, table * np.float32(0.5))


def test_embed_in_one_form_only(threads: _native.Threads) -> None:
    program, table = SmallProgram(threads), numbers(COUNT, 96)
    out = program.tensor(96, "bf16")
    program.native.embed(out, float_matrix(threads, table), 1.0)
    program.run([(0, COUNT)])
    assert np.array_equal(program.native.read(out, COUNT, "bf16"), bf16(table))


def test_embed_positions(threads: _native.Threads) -> None:
    program, table = SmallProgram(threads), numbers(64, 32)
    out = program.tensor(32)
    program.native.embed_positions(out, float_matrix(threads, table))
    program.run([(20, 5), (3, 2)])
    assert np.array_equal(program.native.read(out, 7), table[[20, 21, 22, 23, 24, 3, 4]])


def test_add_and_convert(threads: _native.Threads) -> None:
    program, x, y = SmallProgram(threads), numbers(COUNT, 64), numbers(COUNT, 64, seed=1)
    a, b = program.input(threads, x), program.input(threads, y)
    total, forms = program.tensor(64, *FORMS), program.tensor(64, *FORMS)
    program.native.add(total, a, b)
    program.native.convert(forms, a)
    program.run([(0, COUNT)])
    assert_forms(program, total, x + y)
    assert_forms(program, forms, x)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms(threads: _native.Threads, kind: str, residual: bool) -> None:
    program, x, y = SmallProgram(threads), numbers(COUNT, 96), numbers(COUNT, 96, seed=1)
    gain, bias, eps = numbers(96, seed=2), numbers(96, seed=3), 1e-5
    a, b = program.input(threads, x), program.input(threads, y)
    out, total = program.tensor(96, *FORMS), program.tensor(96)
    more = (b, total) if residual else ()
    if kind == "rms":
        program.native.rms_norm(out, a, gain, eps, *more)
    else:
        program.native.layer_norm(out, a, gain, bias, eps, *more)
    program.run([(0, COUNT)])
    whole = x + y if residual else x
    wide = whole.astype(np.float64)
    if kind == "rms":
        expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps) * gain
    else:
        wide -= wide.mean(axis=1, keepdims=True)
        expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps) * gain + bias
    assert_forms(program, out, expected.astype(np.float32))
    if residual:
        assert np.array_equal(program.native.read(total, COUNT), whole)


def activated(x: Float32, kind: str) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    if kind == "silu":
        return np.asarray(wide / (1 + np.exp(-wide)))
    return np.asarray(0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))))


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
def test_activations(threads: _native.Threads, kind: str) -> None:
    program, x = SmallProgram(threads), 3 * numbers(COUNT, 128)
    a = program.input(threads, x)
    plain, gated = program.tensor(128, *FORMS), program.tensor(64, *FORMS)
    program.native.activation(plain, a, kind)
    program.native.gated_activation(gated, a, kind)
    program.run([(0, COUNT)])
    assert_forms(program, plain, activated(x, kind).astype(np.float32))
    assert_forms(program, gated, (activated(x[:, :64], kind) * x[:, 64:]).astype(np.float32))


@pytest.mark.parametrize("formats", [("F32",), ("F16",), ("BF16",), ("Q8_0",), ("Q8_0", "BF16", "F32")])
@pytest.mark.parametrize("rows", [1, COUNT, 130])
def test_linear(threads: _native.Threads, formats: tuple[str, ...], rows: int) -> None:
    """Segments that are no whole tiles, of several formats: each against the form of x that it is multiplied with."""
    program, x, bias = SmallProgram(threads), numbers(rows, 64), numbers(70 * len(formats), seed=2)
    segments = [(name, stored(name, numbers(70, 64, seed=3 + i))) for i, name in enumerate(formats)]
    weight = _native.Matrix(threads, 64, segments, bias)
    assert weight.input_forms == [form for form in FORMS if form in {_native.input_form(name) for name in formats}]
    a = program.input(threads, x, *weight.input_forms)
    out = program.tensor(weight.out_features)
    program.native.linear(out, a, weight)
    program.run([(0, rows)])
    found = program.native.read(out, rows)
    for index, name in enumerate(formats):
        columns = slice(70 * index, 70 * index + 70)
        taken = program.native.read(a, rows, _native.input_form(name))
        expected, size = product(taken, unpacked(weight)[columns])
        assert_close(found[:, columns], expected + bias[columns], size)


@pytest.mark.parametrize(("format_name", "width"), [("F32", 72), ("BF16", 70), ("Q8_0", 288)])
@pytest.mark.parametrize("rows", [1, 130])
def test_gated_linear(threads: _native.Threads, format_name: str, width: int, rows: int) -> None:
    """The same numbers as the product and then the activation, in every form that the width allows."""
    forms = FORMS if width % 32 == 0 else FORMS[:2]
    program, x, bias = SmallProgram(threads), numbers(rows, 64), numbers(2 * width, seed=2)
    halves = [(format_name, stored(format_name, numbers(width, 64, seed=seed))) for seed in (3, 4)]
    weight = _native.Matrix(threads, 64, halves, bias)
    a = program.input(threads, x, *weight.input_forms)
    out, both, expected = program.tensor(width, *forms), program.tensor(2 * width), program.tensor(width, *forms)
    program.native.gated_linear(out, a, weight, "silu")
    program.native.linear(both, a, weight)
    program.native.gated_activation(expected, both, "silu")
    program.run([(0, rows)])
    for form in forms:
        assert np.array_equal(program.native.read(out, rows, form), program.native.read(expected, rows, form))


def test_logits_in_slices(threads: _native.Threads) -> None:
    program, x, head = SmallProgram(threads, max_logit_rows=4), numbers(30, 64), numbers(50, 64, seed=1)
    a = program.input(threads, x, *FORMS)
    selected = program.tensor(64, *FORMS)
    normed = program.tensor(64, "bf16")
    program.native.select_rows(selected, a)
    program.native.convert(normed, selected)
    program.native.logits_linear(selected, float_matrix(threads, head))
    chosen = np.array([0, 3, 4, 9, 11, 12, 20, 21, 29], np.int64)
    first = program.run([(0, 30)], logit_rows=chosen)
    assert first.shape == (4, 50)
    for form in FORMS:
        assert np.array_equal(program.native.read(selected, 9, form), program.native.read(a, 30, form)[chosen])
    assert np.array_equal(program.native.read(normed, 9, "bf16"), bf16(x[chosen]))
    expected, size = product(x[chosen], head)
    assert_close(first, expected[:4], size[:4])
    assert_close(program.native.logits(8), expected[8:], size[8:])
    assert_close(program.native.logits(4), expected[4:8], size[4:8])
    with pytest.raises(IndexError, match="first is 9"):
        program.native.logits(9)
    assert program.run([(0, 30)], logit_rows=chosen[:0]).shape == (0, 50)


def test_logits_outlive_the_names_of_their_program(threads: _native.Threads) -> None:
    program, x = SmallProgram(threads), numbers(3, 64)
    selected = program.tensor(64)
    program.native.select_rows(selected, program.input(threads, x))
    program.native.logits_linear(selected, float_matrix(threads, np.eye(64, dtype=np.float32)))
    logits = program.run([(0, 3)])
    del program
    assert np.array_equal(logits, x)
