"""Triton's interpreter, mended where it is wrong: products of bfloat16, the format that GPUs compute in by default.

It keeps bfloat16 as the bits of an integer, which numpy then multiplies as integers.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np


@functools.cache
def mend_bfloat16() -> None:
    """For this process; nothing on a GPU."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply: Callable[..., Any] = InterpreterBuilder.create_dot

    def widened(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        return TensorHandle((operand.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return multiply(self, widened(a), widened(b), *more)

    InterpreterBuilder.create_dot = create_dot
