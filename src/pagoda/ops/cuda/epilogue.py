"""What follows a product's sums in the same kernel: the deferred norm, bias, gate, and the step along the residual stream.

A product's kernel takes the parameters that `Epilogue.arguments` names, and ends a tile of outputs with `finish`:

    @triton.jit
    def kernel(…, num_rows, num_outputs,
               out_ptr, out_stride, bias_ptr, stream_ptr, gain_ptr, scaled_ptr, sums_ptr, sums_stride,
               norm_ptr, norm_stride, norm_columns, norm_size, norm_eps, GATE: tl.constexpr, …):
        …
        finish(first, second, rows, columns, tile, num_rows, num_outputs,
               out_ptr, out_stride, bias_ptr, stream_ptr, gain_ptr, scaled_ptr, sums_ptr, sums_stride,
               norm_ptr, norm_stride, norm_columns, norm_size, norm_eps, GATE, AXIS)

    kernel[grid](…, **epilogue.arguments())

A pointer that is None switches its part off when the kernel is compiled. Kernels that split the sum over inputs combine the
parts first (see `split`); only the program that has the whole sum stores.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.elementwise import activated
from pagoda.ops.interface import Activation


@dataclass(frozen=True, slots=True)
class Residual:
    """stream [T, n]: what the product's outputs are added to; `out` is the sum, in the activations' format. gain [n] float32:
    of the RMS norm that follows. scaled [T, n] = sum × gain. sums [T, at least the product's tiles of outputs] float32: each
    tile's sum of squares of the sum; what columns there are beyond stay as they were, and are not read.
    """

    stream: torch.Tensor
    gain: torch.Tensor
    scaled: torch.Tensor
    sums: torch.Tensor


@dataclass(frozen=True, slots=True)
class DeferredNorm:
    """The product's rows are still to be multiplied by 1 / sqrt(total of the row's `sums` / size + eps).

    sums [T, tiles]: just the columns that the product before wrote.
    """

    sums: torch.Tensor
    size: int
    eps: float


@dataclass(frozen=True, slots=True)
class Epilogue:
    """out [T, n], any stride between rows, which the residual stream's tensors share. bias [sums of a row] float32. With a gate
    there are 2n sums in a row, its first n and second n outputs' worth; else n.
    """

    out: torch.Tensor
    bias: torch.Tensor | None = None
    gate: Activation | None = None
    residual: Residual | None = None
    norm: DeferredNorm | None = None

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but a bias."""
        return self.gate is None and self.residual is None and self.norm is None

    def arguments(self) -> dict[str, torch.Tensor | int | float | str | None]:
        """Keyword arguments of a kernel that ends in `finish`."""
        residual, norm = self.residual, self.norm
        return {
            "out_ptr": self.out,
            "out_stride": self.out.stride(0),
            "bias_ptr": self.bias,
            "stream_ptr": None if residual is None else residual.stream,
            "gain_ptr": None if residual is None else residual.gain,
            "scaled_ptr": None if residual is None else residual.scaled,
            "sums_ptr": None if residual is None else residual.sums,
            "sums_stride": 0 if residual is None else residual.sums.stride(0),
            "norm_ptr": None if norm is None else norm.sums,
            "norm_stride": 0 if norm is None else norm.sums.stride(0),
            "norm_columns": 0 if norm is None else norm.sums.shape[1],
            "norm_size": 1 if norm is None else norm.size,
            "norm_eps": 0.0 if norm is None else norm.eps,
            "GATE": self.gate or "",
        }


@triton.jit
def finish(
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
    GATE: tl.constexpr,
    AXIS: tl.constexpr,
):
    """End a tile of a product.

    first: float32 sums [rows, columns] where AXIS is 1, [columns, rows] where it is 0: AXIS is the outputs' one. second: the
    same of the gate's other half, `num_outputs` further on in the matrix; None without a gate.
    rows [BM], columns [BN]: indices into `out`; what is not below num_rows, num_outputs is masked off. tile: index of this
    tile of columns, which is the column of `sums` that it writes. GATE: "" or an `Activation`.
    """
    ACROSS: tl.constexpr = 1 - AXIS
    row = tl.expand_dims(rows, AXIS).to(tl.int64)
    column = tl.expand_dims(columns, ACROSS)
    is_inside = (row < num_rows) & (column < num_outputs)
    if norm_ptr is not None:
        factors = tl.expand_dims(
            row_factors(rows, num_rows, norm_ptr, norm_stride, norm_columns, norm_size, norm_eps), AXIS
        )
        first = first * factors
        if GATE != "":
            second = second * factors
    if bias_ptr is not None:
        first += tl.load(bias_ptr + column, mask=column < num_outputs, other=0.0)
        if GATE != "":
            second += tl.load(bias_ptr + num_outputs + column, mask=column < num_outputs, other=0.0)
    if GATE != "":
        first = activated(first, GATE) * second
    at = row * out_stride + column
    if stream_ptr is not None:
        first += tl.load(stream_ptr + at, mask=is_inside, other=0.0).to(tl.float32)
        # The stream is kept rounded, so the norm is of the rounded sum.
        first = first.to(out_ptr.dtype.element_ty).to(tl.float32)
        gain = tl.load(gain_ptr + column, mask=column < num_outputs, other=0.0)
        tl.store(scaled_ptr + at, (first * gain).to(scaled_ptr.dtype.element_ty), mask=is_inside)
        squares = tl.sum(tl.where(is_inside, first * first, 0.0), AXIS)
        tl.store(sums_ptr + rows.to(tl.int64) * sums_stride + tile, squares, mask=rows < num_rows)
    tl.store(out_ptr + at, first.to(out_ptr.dtype.element_ty), mask=is_inside)


@triton.jit
def row_factors(rows, num_rows, norm_ptr, norm_stride, norm_columns, norm_size, norm_eps):
    """1 / sqrt(mean of squares + eps) of these rows [BM], from the sums of squares of their tiles."""
    BLOCK: tl.constexpr = 1024 // rows.shape[0] if rows.shape[0] <= 64 else 16
    within = tl.arange(0, BLOCK)
    row = rows[:, None].to(tl.int64)
    total = tl.zeros([rows.shape[0]], tl.float32)
    for start in range(0, norm_columns, BLOCK):
        column = start + within[None, :]
        part = tl.load(
            norm_ptr + row * norm_stride + column, mask=(row < num_rows) & (column < norm_columns), other=0.0
        )
        total += tl.sum(part, 1)
    return tl.rsqrt(total / norm_size + norm_eps)
