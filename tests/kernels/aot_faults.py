"""Kernels that `triton_aot` must refuse, and one that it must not."""

from __future__ import annotations

import triton
import triton.language as tl

from tests.kernels.triton_aot import variant


@triton.jit
def _product(x, y, out, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)
    at = rows[:, None] * SIZE + rows[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at)))


@triton.jit
def _of_nothing(x):
    tl.store(x, tl.no_such_function(tl.load(x)))


_POINTERS = {"x": "*fp32", "y": "*fp32", "out": "*fp32"}

VARIANTS = [
    variant(_product, "fits", SIZE=64, architectures=(80,), **_POINTERS),
    variant(_product, "too much shared memory", SIZE=128, num_warps=8, architectures=(89,), **_POINTERS),
    variant(_product, "spills", SIZE=64, architectures=(80,), options={"maxnreg": 32}, **_POINTERS),
    variant(_of_nothing, "does not compile", architectures=(89,), x="*fp32"),
    variant(_product, "a parameter is missing", SIZE=64, architectures=(80,), x="*fp16", y="*fp16"),
]
