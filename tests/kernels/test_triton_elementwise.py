"""Kernels that go over each element once: what they compute in every format, at widths that fill no tile, in place."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from pagoda.ops.cuda import elementwise
from pagoda.ops.interface import Activation
from tests.kernels.gpu import DEVICE, DTYPES, Guarded, assert_near, random

# One token, narrow rows that share a tile, a width that is no multiple of anything, several tiles a row.
SHAPES = ((1, 8), (37, 48), (2, 83), (3, 2500))
every_case = pytest.mark.parametrize(("shape", "dtype"), [(shape, dtype) for shape in SHAPES for dtype in DTYPES])


@every_case
def test_add(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, y, out = random(*shape, dtype=dtype), random(*shape, dtype=dtype), Guarded(*shape, dtype=dtype)

    elementwise.add(x, y, out.values)

    assert_near(out.check(), x.double() + y.double())
    elementwise.add(x, y, x)
    assert torch.equal(x, out.values)


@every_case
def test_select_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, rows = random(*shape, dtype=dtype), torch.tensor([shape[0] - 1, 0], dtype=torch.int32, device=DEVICE)
    out = Guarded(2, shape[1], dtype=dtype)

    elementwise.select_rows(x, rows, out.values)

    assert torch.equal(out.check(), x[rows.long()])
    elementwise.select_rows(x, rows[1:], out.values[:1])  # a slice that does not begin at a multiple of 16 bytes
    assert torch.equal(out.check(), x[[0, 0]])


@pytest.mark.parametrize("half", [1, 10, 32, 48])
def test_angles_of_far_positions(half: int) -> None:
    positions = torch.tensor([0, 1, 77, 4096, 32_767, 131_071], dtype=torch.int32, device=DEVICE)
    frequencies = 10_000.0 ** -(torch.arange(half, device=DEVICE) / half)
    cosines, sines = Guarded(6, half), Guarded(6, half)

    elementwise.angles(positions, frequencies, cosines.values, sines.values)

    angles = (positions[:, None].float() * frequencies).double()  # rounded to float32 first, as the models' were
    assert (cosines.check() - angles.cos()).abs().max() < 2e-7
    assert (sines.check() - angles.sin()).abs().max() < 2e-7


def activated(x: torch.Tensor, kind: Activation) -> torch.Tensor:
    """In float64. (1 + tanh(u)) / 2 is sigmoid(2 u), but for what is lost where tanh(u) is near -1."""
    wide = x.double()
    u = wide if kind == "silu" else math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)
    return wide * torch.sigmoid(u)


def test_what_is_compared_with_is_what_torch_says() -> None:
    x = random(1000).double()

    torch.testing.assert_close(activated(x, "silu"), F.silu(x))
    torch.testing.assert_close(activated(x, "gelu_tanh"), F.gelu(x, approximate="tanh"))


@every_case
@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
def test_activations(shape: tuple[int, int], dtype: torch.dtype, kind: Activation) -> None:
    x = 3 * random(shape[0], 2 * shape[1], dtype=dtype)
    x[0, :4] = torch.tensor([0.0, -1000.0, 1000.0, -30.0])
    plain, gated = Guarded(shape[0], 2 * shape[1], dtype=dtype), Guarded(*shape, dtype=dtype)

    elementwise.activation(x, kind, plain.values)
    elementwise.gated_activation(x, kind, gated.values)

    assert_near(plain.check(), activated(x, kind))
    gate, up = x.double().chunk(2, dim=-1)
    assert_near(gated.check(), activated(gate, kind) * up)
    elementwise.activation(x, kind, x)
    assert torch.equal(x, plain.values)


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
def test_activations_keep_their_small_values(kind: Activation) -> None:
    """They are not differences of numbers near one."""
    x = torch.linspace(-8, 8, 1024, device=DEVICE)[None]
    out = torch.empty_like(x)

    elementwise.activation(x, kind, out)

    torch.testing.assert_close(out.double(), activated(x, kind), rtol=2e-5, atol=0)


def test_no_rows() -> None:
    nothing = torch.empty((0, 8), device=DEVICE)

    elementwise.add(nothing, nothing, nothing)
