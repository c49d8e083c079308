"""Norms against float64: RMS and layer norm, with and without the addition before, of narrow and wide rows."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from pagoda.ops.cuda.norm import norm
from tests.kernels.gpu import DEVICE, DTYPES, Guarded, assert_near, random

EPS = 1e-5
# One token, narrow rows that share a tile, a width of no power of two, and the widest models'.
SHAPES = ((1, 8), (21, 48), (3, 576), (2, 2500), (2, 16_384))


def normed(x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    wide = x.double()
    if bias is not None:
        return F.layer_norm(wide, wide.shape[-1:], gain.double(), bias.double(), EPS)
    return wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * gain.double()


@pytest.mark.parametrize(("shape", "dtype", "has_bias"), list(itertools.product(SHAPES, DTYPES, (False, True))))
def test_norm(shape: tuple[int, int], dtype: torch.dtype, has_bias: bool) -> None:
    # Rows far from zero, of different sizes: a variance is not a mean of squares, and one row's is not another's.
    scales = torch.logspace(-1, 1, shape[0], device=DEVICE)[:, None]
    x, addend = ((scales * (random(*shape) + 2)).to(dtype) for _ in range(2))
    gain, bias = random(shape[1]), random(shape[1]) if has_bias else None
    out, total = Guarded(*shape, dtype=dtype), Guarded(*shape, dtype=dtype)

    norm(x, gain, bias, EPS, out.values)
    assert_near(out.check(), normed(x, gain, bias))

    norm(x, gain, bias, EPS, out.values, addend=addend, total=total.values)
    assert_near(total.check(), x.double() + addend.double())
    assert_near(out.check(), normed(total.values, gain, bias))


def test_the_total_may_be_either_summand() -> None:
    gain = random(80)
    for kept in (0, 1):
        summands = [random(5, 80, dtype=torch.float16) for _ in range(2)]
        wanted, out = summands[0] + summands[1], torch.empty_like(summands[0])

        norm(summands[0], gain, None, EPS, out, addend=summands[1], total=summands[kept])

        assert torch.equal(summands[kept], wanted)
        assert_near(out, normed(wanted, gain, None))


def test_eps_keeps_rows_of_zeros_finite() -> None:
    out, bias = Guarded(2, 48), random(48)

    norm(torch.zeros((2, 48), device=DEVICE), random(48), None, EPS, out.values)
    assert torch.equal(out.check(), torch.zeros_like(out.values))

    norm(torch.full((2, 48), 7.0, device=DEVICE), random(48), bias, EPS, out.values)
    assert torch.equal(out.check(), bias.expand(2, 48))


def test_a_row_is_the_same_whatever_is_beside_it() -> None:
    x, gain = random(9, 100, dtype=torch.bfloat16), random(100)
    together, alone = torch.empty_like(x), torch.empty_like(x[:1])

    norm(x, gain, None, EPS, together)
    norm(x[6:7], gain, None, EPS, alone)

    assert torch.equal(together[6:7], alone)
