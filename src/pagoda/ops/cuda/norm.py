"""RMS norm and layer norm, with the addition to the residual stream before them."""

from __future__ import annotations

import torch
import torch.nn.functional as F


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
    total may be x or addend.
    """
    if addend is not None and total is not None:
        torch.add(x, addend, out=total)
        x = total
    wide = x.float()
    if bias is None:
        out.copy_(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * gain)
    else:
        out.copy_(F.layer_norm(wide, wide.shape[-1:], gain, bias, eps))
