"""Norms, activations and the forms of rows on every instruction set: against float64, bit for bit, and with odd numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from pagoda import _native
from tests.kernels import naive
from tests.native.programs import Float32, SmallProgram, bf16, float_matrix, step, stored
from tests.soak import soak_count

# Whole vectors, groups and pairs of groups, and every kind of rest.
WIDTHS = [1, 2, 15, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 130, 160, 576, 1000, 2048]
QUANTIZED_WIDTHS = [32, 96, 128, 160, 256, 576, 2048]
ROUNDS = soak_count(40)

# What a command is: (program, out, x, y) → records it.
Recorded = Callable[[SmallProgram, int, int, int], None]
Wide = npt.NDArray[np.float64]


def numbers(*shape: int, seed: int = 0, size: float = 3.0) -> Float32:
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


def computed(
    threads: _native.Threads, record: Recorded, x: Float32, y: Float32, width: int, *, form: _native.Form = "f32"
) -> Float32:
    """What a command makes of each row of x (and of y), in one form."""
    program = SmallProgram(threads, max_tokens=len(x))
    inputs = [program.input(threads, table) for table in (x, y)]
    out = program.tensor(width, form)
    record(program, out, *inputs)
    program.run([(0, len(x))])
    return program.native.read(out, len(x), form)


def rms_norm(gain: Float32) -> Recorded:
    return lambda program, out, x, y: program.native.rms_norm(out, x, gain, 1e-5)


def add_rms_norm(gain: Float32) -> Recorded:
    return lambda program, out, x, y: program.native.rms_norm(out, x, gain, 1e-5, y, program.tensor(len(gain)))


def layer_norm(gain: Float32, bias: Float32) -> Recorded:
    return lambda program, out, x, y: program.native.layer_norm(out, x, gain, bias, 1e-5)


def convert(program: SmallProgram, out: int, x: int, y: int) -> None:
    program.native.convert(out, x)


def activation(name: str) -> Recorded:
    return lambda program, out, x, y: program.native.activation(out, x, name)


def gated(name: str) -> Recorded:
    return lambda program, out, x, y: program.native.gated_activation(out, x, name)


def quantized(x: Float32) -> Float32:
    """What the codes of each group of 32 stand for, in float32 as the kernels have it."""
    groups = x.reshape(len(x), -1, 32)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    return (np.rint(groups * inverse) * (largest / np.float32(127))).reshape(x.shape)


@pytest.mark.parametrize("width", WIDTHS)
def test_norms(threads: _native.Threads, width: int) -> None:
    x, y = numbers(3, width, seed=1) + 1, numbers(3, width, seed=2)
    gain, bias = numbers(width, seed=3, size=1.0), numbers(width, seed=4)
    wide, total = x.astype(np.float64), (x + y).astype(np.float64)
    # Of a row's numbers, some multiple of float32's rounding; a difference from the mean may be small by cancellation.
    rtol, atol = 1e-6, 2e-6 * float(np.abs(gain).max())
    found = computed(threads, rms_norm(gain), x, y, width)
    np.testing.assert_allclose(found, naive.rms_norm(wide, gain.astype(np.float64), 1e-5), rtol=rtol, atol=atol)
    found = computed(threads, add_rms_norm(gain), x, y, width)
    np.testing.assert_allclose(found, naive.rms_norm(total, gain.astype(np.float64), 1e-5), rtol=rtol, atol=atol)
    if width > 2:
        found = computed(threads, layer_norm(gain, bias), x, y, width)
        expected = naive.layer_norm(wide, gain.astype(np.float64), bias.astype(np.float64), 1e-5)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=2 * atol)


@pytest.mark.parametrize(("name", "exact", "bound"), [("silu", naive.silu, 4e-7), ("gelu_tanh", naive.gelu_tanh, 3e-6)])
@pytest.mark.parametrize("width", [1, 16, 47, 128, 1000])
def test_activations(
    threads: _native.Threads, name: str, exact: Callable[[Wide], Wide], bound: float, width: int
) -> None:
    x = numbers(4, 2 * width, seed=5)
    expected = exact(x.astype(np.float64))
    # The error of e^x grows with x, where the result is small.
    np.testing.assert_allclose(computed(threads, activation(name), x, x, 2 * width), expected, rtol=bound, atol=1e-7)
    gate, up = expected[:, :width], x[:, width:].astype(np.float64)
    np.testing.assert_allclose(computed(threads, gated(name), x, x, width), gate * up, rtol=bound, atol=1e-6)


@pytest.mark.parametrize("name", ["silu", "gelu_tanh"])
def test_activations_of_very_large_numbers(threads: _native.Threads, name: str) -> None:
    x = np.array([[1e2, 1e10, 3e38, np.inf, 0.0, -1e2, -1e10, -3e38]], np.float32)
    found = computed(threads, activation(name), x, x, 8)
    assert found.tolist() == [[*x[0, :5].tolist(), 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("width", QUANTIZED_WIDTHS)
def test_codes_are_nearest_to_the_numbers_by_a_scale_of_their_group(threads: _native.Threads, width: int) -> None:
    for seed in range(ROUNDS):
        x = numbers(5, width, seed=seed, size=10.0 ** (seed % 9 - 4))
        x[1, : width // 32 * 8] = 0.0
        x[2] = np.round(x[2] * 2) / 2  # codes halfway between two
        assert np.array_equal(computed(threads, convert, x, x, width, form="q8"), quantized(x))


def test_groups_that_have_no_scale_are_zeros(threads: _native.Threads) -> None:
    x = np.zeros((1, 160), np.float32)
    x[0, 32:64], x[0, 64], x[0, 140] = 1e-38, 2.0**-101, -(2.0**-110)
    assert not computed(threads, convert, x, x, 160, form="q8").any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_none_in_its_whole_group_and_nowhere_else(threads: _native.Threads, bad: float) -> None:
    rows = numbers(160, 160)
    expected = quantized(rows)
    for place in range(160):
        rows[place, place] = bad
        expected[place, place // 32 * 32 :][:32] = np.nan
    np.testing.assert_array_equal(computed(threads, convert, rows, rows, 160, form="q8"), expected)


def test_what_is_no_number_stays_none_through_norms_and_products(threads: _native.Threads) -> None:
    x = numbers(4, 64)
    x[1, 40], x[2, 3] = np.nan, np.inf
    weight = numbers(16, 64, seed=1)
    program = SmallProgram(threads, max_tokens=len(x))
    source = program.input(threads, x)
    normed, out = program.tensor(64, "q8"), program.tensor(16)
    program.native.rms_norm(normed, source, np.ones(64, np.float32), 1e-5)
    program.native.linear(out, normed, _native.Matrix(threads, 64, [("Q8_0", stored("Q8_0", weight))]))
    program.run([(0, 4)])
    assert np.isnan(program.native.read(out, 4)).all(axis=1).tolist() == [False, True, True, False]


@pytest.mark.parametrize("width", [1, 31, 32, 33, 577])
def test_bf16_is_nearest_to_even_and_padded_with_a_zero(threads: _native.Threads, width: int) -> None:
    x = numbers(3, width)
    x[0, 0], x[1, -1] = np.float32(1 + 2**-8), np.float32(1 + 3 * 2**-8)  # halfway: down to even, and up
    # The bf16 rows lie where rows of NaN were before.
    cache = _native.KVCache([(1, 32)], 1, 16)
    program = _native.Program(threads, cache, 3, 1, 1, 1 << 20)
    source, dirt = program.tensor(width, f32=0), program.tensor(1024, f32=1 << 16)
    narrow, out = program.tensor(width, bf16=1 << 16), program.tensor(8, f32=1 << 17)
    program.embed(dirt, float_matrix(threads, np.full((3, 1024), np.nan, np.float32)), 1.0)
    program.embed(source, float_matrix(threads, x), 1.0)
    program.convert(narrow, source)
    ones = np.ones((8, width), np.float32)
    program.linear(out, narrow, _native.Matrix(threads, width, [("BF16", stored("BF16", ones))]))
    program.run(
        **step([(0, 3)])
        | {"slot_mapping": np.arange(3), "block_table": np.zeros((1, 1), np.int32), "new_blocks": np.zeros(0, np.int64)}
    )
    assert np.array_equal(program.read(narrow, 3, "bf16"), bf16(x))
    sums = bf16(x).astype(np.float64).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(program.read(out, 3), np.broadcast_to(sums, (3, 8)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", ["f32", "bf16", "q8"])
@pytest.mark.parametrize("width", [32, 160, 576])
def test_a_row_depends_on_nothing_but_itself(threads: _native.Threads, width: int, form: _native.Form) -> None:
    x, y = numbers(40, 2 * width), numbers(40, 2 * width, seed=1)
    gain, bias = numbers(2 * width, seed=2), numbers(2 * width, seed=3)
    order = np.random.default_rng(4).permutation(40)
    cases = [(record, 2 * width) for record in (rms_norm(gain), add_rms_norm(gain), layer_norm(gain, bias), convert)]
    cases += [(activation("gelu_tanh"), 2 * width), (gated("silu"), width)]
    for record, out_width in cases:
        together = computed(threads, record, x, y, out_width, form=form)
        assert np.array_equal(computed(threads, record, x[order], y[order], out_width, form=form), together[order])
        assert np.array_equal(computed(threads, record, x[7:8], y[7:8], out_width, form=form), together[7:8])


def test_equal_groups_have_equal_codes_wherever_they_lie(threads: _native.Threads) -> None:
    x = np.tile(numbers(1, 32), (1, 7))  # four at a time, and three one by one
    found = computed(threads, convert, x, x, 224, form="q8").reshape(7, 32)
    assert (found == found[0]).all()
