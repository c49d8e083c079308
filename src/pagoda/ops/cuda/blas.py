"""Products by the BLAS library that torch brings, for many rows."""

from __future__ import annotations

import torch

from pagoda.ops.cuda.elementwise import gated_activation
from pagoda.ops.cuda.epilogue import Epilogue
from pagoda.ops.cuda.machine import Machine


def can_use_blas(x: torch.Tensor, epilogue: Epilogue) -> bool:
    """Whether the library has it: float32 outputs of narrower inputs only on GPUs, a norm or a residual stream nowhere."""
    is_wider = epilogue.out.dtype != x.dtype
    return epilogue.norm is None and epilogue.residual is None and (not is_wider or x.is_cuda)


def blas(x: torch.Tensor, values: torch.Tensor, epilogue: Epilogue, machine: Machine) -> None:
    """epilogue.out [T, n] = x [T, k] × the transpose of values [n or 2n, k], and what the epilogue says.

    With a gate both halves go through the memory that kernels share, as many rows at once as it holds.
    """
    out = epilogue.out
    if epilogue.gate is None:
        _multiply(x, values, epilogue.bias, out)
        return
    room = machine.partials.view(x.dtype)
    most = len(room) // len(values)
    for first in range(0, len(x), most):
        rows = x[first : first + most]
        halves = room[: len(rows) * len(values)].view(len(rows), len(values))
        _multiply(rows, values, epilogue.bias, halves)
        gated_activation(halves, epilogue.gate, out[first : first + most])


def _multiply(x: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    if bias is not None:
        out.copy_(bias)  # then added to in the library's own sums
        if out.dtype == x.dtype:
            torch.addmm(out, x, values.t(), out=out)
        else:
            torch.addmm(out, x, values.t(), out_dtype=out.dtype, out=out)
    elif out.dtype == x.dtype:
        torch.mm(x, values.t(), out=out)
    else:
        torch.mm(x, values.t(), out_dtype=out.dtype, out=out)
