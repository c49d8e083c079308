"""Dense formats: every element is a number of its own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def f32(blocks: Bytes, out: Floats) -> None:
    """blocks: [n, 4]; out: [n, 1]."""
    out[:] = blocks.view("<f4")


def f16(blocks: Bytes, out: Floats) -> None:
    """blocks: [n, 2]; out: [n, 1]."""
    out[:] = blocks.view("<f2")


def bf16(blocks: Bytes, out: Floats) -> None:
    """blocks: [n, 2], each the upper half of a float32; out: [n, 1]."""
    out.view(np.uint32)[:] = blocks.view("<u2").astype(np.uint32) << 16
