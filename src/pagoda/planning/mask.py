"""The causal mask, counted: which keys the queries of a step see."""

from __future__ import annotations


def attended_pairs(start: int, num_tokens: int, window: int | None) -> int:
    """(query, key) pairs of positions start … start + num_tokens - 1: a token sees itself and all before it in its window."""
    return _pairs_before(start + num_tokens, window) - _pairs_before(start, window)


def visible_keys(start: int, num_tokens: int, window: int | None) -> int:
    """How many keys at least one of the positions start … start + num_tokens - 1 sees."""
    end = start + num_tokens
    return end if window is None or not num_tokens else min(end, window + num_tokens - 1)


def _pairs_before(end: int, window: int | None) -> int:
    """Pairs of the queries 0 … end - 1: the sum of min(position + 1, window)."""
    ramp = end if window is None else min(end, window)
    return ramp * (ramp + 1) // 2 + (end - ramp) * ramp
