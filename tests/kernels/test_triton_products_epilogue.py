"""What follows a product's sums: each combination of its parts against the same in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from pagoda.ops.cuda.epilogue import DeferredNorm, Epilogue, Residual, finish
from pagoda.ops.interface import Activation

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BLOCK_ROWS, BLOCK_COLUMNS = 4, 8


@triton.jit
def ended(
    sums_of_row_ptr,
    num_rows,
    num_outputs,
    out_ptr,
    out_stride,
    bias_ptr,
    stream_ptr,
    gain_ptr,
    scaled_ptr,
    sums_ptr,
    sums_stride,
    norm_ptr,
    norm_stride,
    norm_columns,
    norm_size,
    norm_eps,
    GATE: tl.constexpr,
    AXIS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """`finish` after sums [T, n or 2n] that are there already."""
    tile = tl.program_id(0)
    rows, columns = tl.arange(0, BM), tile * BN + tl.arange(0, BN)
    row, column = tl.expand_dims(rows, AXIS), tl.expand_dims(columns, 1 - AXIS)
    is_inside = (row < num_rows) & (column < num_outputs)
    width = num_outputs if GATE == "" else 2 * num_outputs
    # Where there is nothing, a product's sums may be anything.
    first = tl.load(sums_of_row_ptr + row * width + column, mask=is_inside, other=float("nan"))
    second = None
    if GATE != "":
        second = tl.load(sums_of_row_ptr + row * width + num_outputs + column, mask=is_inside, other=float("nan"))
    finish(
        first,
        second,
        rows,
        columns,
        tile,
        num_rows,
        num_outputs,
        out_ptr,
        out_stride,
        bias_ptr,
        stream_ptr,
        gain_ptr,
        scaled_ptr,
        sums_ptr,
        sums_stride,
        norm_ptr,
        norm_stride,
        norm_columns,
        norm_size,
        norm_eps,
        GATE,
        AXIS,
    )


ROWS, OUTPUTS = 3, 21


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("gate", "has_bias", "has_residual", "has_norm"),
    [
        *(
            (gate, *flags)
            for gate in (None, "silu", "gelu_tanh")
            for flags in itertools.product((False, True), (False,), (False, True))
        ),
        *((None, *flags) for flags in itertools.product((False, True), (True,), (False, True))),
    ],
)
def test_each_combination(
    axis: int, gate: Activation | None, has_bias: bool, has_residual: bool, has_norm: bool
) -> None:
    dtype = torch.float16
    generator = torch.Generator()
    generator.seed()

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    width = OUTPUTS * (1 if gate is None else 2)
    sums_of_row, bias, gain = random(ROWS, width) * 3, random(width), random(OUTPUTS)
    sums_of_row[0, :2] = torch.tensor([-200.0, 30.0])
    stream = random(ROWS, OUTPUTS).to(dtype)
    squares, size, eps = random(ROWS, 70).square(), 50, 1e-5
    tiles = -(-OUTPUTS // BLOCK_COLUMNS)

    nothing = float("nan")
    out, scaled = (torch.full((ROWS + 1, OUTPUTS + 3), nothing, dtype=dtype, device=DEVICE) for _ in range(2))
    kept_stream = torch.zeros_like(out)
    kept_stream[:ROWS, :OUTPUTS] = stream
    sums = torch.full((ROWS + 1, tiles + 2), nothing, device=DEVICE)
    given = sums_of_row.to(DEVICE)
    epilogue = Epilogue(
        out[:, :OUTPUTS],
        bias.to(DEVICE) if has_bias else None,
        gate,
        Residual(kept_stream[:, :OUTPUTS], gain.to(DEVICE), scaled[:, :OUTPUTS], sums) if has_residual else None,
        DeferredNorm(squares.to(DEVICE)[:, :67], size, eps) if has_norm else None,
    )
    ended[(tiles,)](given, ROWS, OUTPUTS, **epilogue.arguments(), AXIS=axis, BM=BLOCK_ROWS, BN=BLOCK_COLUMNS)

    expected = sums_of_row.double()
    if has_norm:
        expected *= torch.rsqrt(squares[:, :67].double().sum(-1, keepdim=True) / size + eps)
    if has_bias:
        expected += bias.double()
    if gate is not None:
        left, right = expected.chunk(2, dim=-1)
        expected = (F.silu(left) if gate == "silu" else F.gelu(left, approximate="tanh")) * right
    if has_residual:
        expected += stream.double()
    check(out, expected)
    if has_residual:
        kept = out[:ROWS, :OUTPUTS].cpu().double()
        check(scaled, kept * gain.double())
        by_tile = F.pad(kept.square(), (0, tiles * BLOCK_COLUMNS - OUTPUTS)).view(ROWS, tiles, -1).sum(-1)
        torch.testing.assert_close(sums[:ROWS, :tiles].cpu().double(), by_tile, rtol=1e-5, atol=0)
        assert sums[:ROWS, tiles:].isnan().all()
        assert sums[ROWS].isnan().all()


def check(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Within a float16's rounding of the result, and of the intermediates in float32; nothing else is written."""
    torch.testing.assert_close(got[:ROWS, :OUTPUTS].cpu().double(), expected, rtol=6e-4, atol=1e-5)
    assert got[ROWS].isnan().all()
    assert got[:, OUTPUTS:].isnan().all()
