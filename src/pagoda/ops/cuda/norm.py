"""RMS norm and layer norm, with the addition to the residual stream before them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.tiles import places, whole_rows


def norm(
    x: torch.Tensor,
    gain: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    out: torch.Tensor,
    *,
    addend: torch.Tensor | None = None,
    total: torch.Tensor | None = None,
) -> None:
    """out [T, n] = the norm of x, or of x + addend, which `total` then keeps; RMS norm (arXiv:1910.07467) without a bias,
    layer norm (arXiv:1607.06450) with one. gain, bias [n] float32. Computed in float32, of the sum as `total` holds it.
    total may be x or addend; out may be any of them that is not total. All are contiguous.
    """
    (num_rows, width), tile = x.shape, whole_rows(x.shape[1])
    _norm[tile.grid(num_rows, width)](
        x,
        addend,
        total,
        gain,
        bias,
        out,
        num_rows,
        width,
        eps,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        num_warps=tile.num_warps,
    )


@triton.jit(do_not_specialize=["num_rows"])
def _norm(x, addend, total, gain, bias, out, num_rows, width, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile holds whole rows, so that memory is read once. addend and total, bias: None where there is none."""
    rows, columns, inside = places(num_rows, width, ROWS, COLUMNS)
    at = rows * width + columns
    wide = tl.load(x + at, inside, other=0.0).to(tl.float32)
    if addend is not None:
        wide += tl.load(addend + at, inside, other=0.0).to(tl.float32)
        kept = wide.to(total.dtype.element_ty)
        tl.store(total + at, kept, inside)
        wide = kept.to(tl.float32)
    if bias is not None:
        mean = tl.sum(wide, axis=1, keep_dims=True) / width
        wide = tl.where(inside, wide - mean, 0.0)
    factor = tl.rsqrt(tl.sum(wide * wide, axis=1, keep_dims=True) / width + eps)
    result = wide * factor * tl.load(gain + columns, columns < width, other=0.0)
    if bias is not None:
        result += tl.load(bias + columns, columns < width, other=0.0)
    tl.store(out + at, result, inside)
