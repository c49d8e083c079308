"""Kernels that go over each element once. Tensors are contiguous."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.tiles import part_of_rows, places
from pagoda.ops.interface import Activation


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """out = x + y, all [T, n]. out may be x or y."""
    (num_rows, width), tile = x.shape, part_of_rows(x.shape[1])
    _add[tile.grid(num_rows, width)](
        x, y, out, num_rows, width, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps
    )


def select_rows(x: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, n] = x [T, n] at rows [R]."""
    (num_rows, width), tile = out.shape, part_of_rows(out.shape[1])
    _select_rows[tile.grid(num_rows, width)](
        x, rows, out, num_rows, width, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps
    )


def angles(positions: torch.Tensor, frequencies: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> None:
    """Cosines and sines [T, n] of positions [T] × frequencies [n], all but the positions float32."""
    (num_rows, width), tile = cosines.shape, part_of_rows(cosines.shape[1])
    _angles[tile.grid(num_rows, width)](
        positions,
        frequencies,
        cosines,
        sines,
        num_rows,
        width,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        num_warps=tile.num_warps,
    )


def gated_activation(x: torch.Tensor, kind: Activation, out: torch.Tensor) -> None:
    """out [T, n] = activation(x[:, :n]) × x[:, n:], computed in float32."""
    (num_rows, width), tile = out.shape, part_of_rows(out.shape[1])
    _gated_activation[tile.grid(num_rows, width)](
        x, out, num_rows, width, KIND=kind, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps
    )


def activation(x: torch.Tensor, kind: Activation, out: torch.Tensor) -> None:
    """out = activation(x), both [T, n], computed in float32. out may be x."""
    (num_rows, width), tile = out.shape, part_of_rows(out.shape[1])
    _activation[tile.grid(num_rows, width)](
        x, out, num_rows, width, KIND=kind, ROWS=tile.rows, COLUMNS=tile.columns, num_warps=tile.num_warps
    )


# Nothing may depend on how a step's numbers of rows or the places of its slices happen to divide: Triton would compile a
# kernel again in the middle of serving.


@triton.jit(do_not_specialize=["num_rows"])
def _add(x, y, out, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    at = rows * width + columns
    total = tl.load(x + at, inside).to(tl.float32) + tl.load(y + at, inside).to(tl.float32)
    tl.store(out + at, total, inside)


@triton.jit(do_not_specialize=["num_rows"], do_not_specialize_on_alignment=["chosen"])
def _select_rows(x, chosen, out, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    sources = tl.load(chosen + rows, rows < num_rows, other=0).to(tl.int64)
    tl.store(out + rows * width + columns, tl.load(x + sources * width + columns, inside), inside)


@triton.jit(do_not_specialize=["num_rows"])
def _angles(positions, frequencies, cosines, sines, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """tl.cos and tl.sin reduce large angles exactly (they are CUDA's cosf and sinf, not its fast ones)."""
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    position = tl.load(positions + rows, rows < num_rows, other=0).to(tl.float32)
    angle = position * tl.load(frequencies + columns, columns < width, other=0.0)
    tl.store(cosines + rows * width + columns, tl.cos(angle), inside)
    tl.store(sines + rows * width + columns, tl.sin(angle), inside)


@triton.jit(do_not_specialize=["num_rows"])
def _gated_activation(x, out, num_rows, width, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    gate = x + rows * (2 * width) + columns
    value = activated(tl.load(gate, inside).to(tl.float32), KIND) * tl.load(gate + width, inside).to(tl.float32)
    tl.store(out + rows * width + columns, value, inside)


@triton.jit(do_not_specialize=["num_rows"])
def _activation(x, out, num_rows, width, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    at = rows * width + columns
    tl.store(out + at, activated(tl.load(x + at, inside).to(tl.float32), KIND), inside)


@triton.jit
def activated(x, KIND: tl.constexpr):
    """Of float32 x: silu(x) = x × sigmoid(x); gelu_tanh(x) = x × (1 + tanh(u)) / 2 = x × sigmoid(2 u), where
    u = sqrt(2 / π) (x + 0.044715 x³) (arXiv:1606.08415). The exponential is of a number that is not positive: no overflow.
    """
    tl.static_assert((KIND == "silu") | (KIND == "gelu_tanh"))
    u = x
    if KIND == "gelu_tanh":
        u = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    small = tl.exp(-tl.abs(u))
    return x * (tl.where(u < 0, small, 1.0) / (1.0 + small))
