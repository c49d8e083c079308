"""The ops once more, in float64 and with loops: slow, and plain enough to be believed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pagoda.planning.model_spec import RopeSpec

Array = npt.NDArray[np.float64]


def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    return np.array([row / math.sqrt((row**2).mean() + eps) * gain for row in x])


def layer_norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    return np.array([(row - row.mean()) / math.sqrt(row.var() + eps) * gain + bias for row in x])


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rotated(head: Array, position: int, rope: RopeSpec) -> Array:
    """One head's vector, its element i turned with element i + dim / 2."""
    result, half = head.copy(), rope.dim // 2
    for i in range(half):
        angle = position * rope.base ** (-2 * i / rope.dim) / rope.linear_factor
        a, b = head[i], head[i + half]
        result[i] = a * math.cos(angle) - b * math.sin(angle)
        result[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return result


def attention(q: Array, keys: Array, values: Array, *, first: int, scale: float, window: int | None) -> Array:
    """One request: q [queries, heads, head_dim] at positions first …; keys and values [positions, kv_heads, head_dim]."""
    output = np.zeros_like(q)
    shared = q.shape[1] // keys.shape[1]
    for row, query in enumerate(q):
        position = first + row
        oldest = 0 if window is None else max(0, position - window + 1)
        for head, vector in enumerate(query):
            scores = keys[oldest : position + 1, head // shared] @ vector * scale
            weights = np.exp(scores - scores.max())
            output[row, head] = weights @ values[oldest : position + 1, head // shared] / weights.sum()
    return output
