"""Watermark: how many KV blocks admission leaves free, so that those who run can grow without taking each other's."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from pagoda.core.request import Request

# The share of its max_tokens that a request is expected to use before any has ended; and how many of the last that did count.
FIRST_SHARE = 0.5
NUM_REMEMBERED = 64
GOLDEN_RATIO = (1 + 5**0.5) / 2


class Watermark(Protocol):
    """One object serves one scheduler."""

    def headroom(self, running: Sequence[Request], candidate: Request, num_blocks: int, block_size: int) -> int:
        """Blocks to be left free when the candidate enters. running: those who run already, at least one."""
        ...

    def ended(self, request: Request) -> None:
        """The request has come to an end of its own, with so many tokens."""
        ...


class FixedShare:
    """A share of all blocks, or one for each running request if that is more: for comparison, and for tests of preemption."""

    def __init__(self, share: float) -> None:
        self._share = share

    def headroom(self, running: Sequence[Request], candidate: Request, num_blocks: int, block_size: int) -> int:
        return max(int(num_blocks * self._share), len(running))

    def ended(self, request: Request) -> None:
        """It makes no difference."""


class ExpectedGrowth:
    """As many blocks as those who run are expected to lack at the worst moment to come, or one for each if that is more.

    All grow by a token a step, and whoever ends gives back what it has; the worst moment is just before one of them ends
    (Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025). When one will end is drawn
    from the last requests that did: those that used a larger share of their max_tokens than it has so far. Drawn, for were
    all expected to end with their average, they would all grow and none give back. To reserve all of max_tokens would
    leave most of the cache empty, as few come near it where callers leave it at its default, the whole context; a fixed
    share of the blocks knows nothing of how many will be needed.

    window: a request with that many positions in the cache grows no more, since it gives up a block for each that it takes.
    What it gives back at its end is not counted on then.
    """

    def __init__(self, window: int | None = None) -> None:
        self._window = window
        self._last: deque[float] = deque([FIRST_SHARE], NUM_REMEMBERED)
        self._shares = [FIRST_SHARE]

    def headroom(self, running: Sequence[Request], candidate: Request, num_blocks: int, block_size: int) -> int:
        ends = []
        for request in (*running, candidate):
            generated = len(request.output_token_ids) + request.num_pending
            left, positions = self.expected(request, generated) - generated, request.num_prompt_tokens + generated
            room = left if self._window is None else max(0, self._window + block_size - positions)
            # Who stops growing before it ends keeps what it has grown by.
            ends.append((left, positions - request.num_cached_tokens) if left <= room else (room, -room))
        ends.sort()
        alive, returned, worst = len(ends), 0, 0
        for left, held in ends:
            worst = max(worst, alive * left - returned)
            alive -= 1
            returned += held
        return max(-(-worst // block_size), len(running))

    def expected(self, request: Request, generated: int) -> int:
        """How many tokens it will have in the end, having so many."""
        shares, most = self._shares, request.sampling.max_tokens or 0
        shorter = bisect_right(shares, generated / most) if most else len(shares)
        if shorter == len(shares):  # nobody went as far: it may as well be half way
            return min(most, 2 * generated)
        # The same draw for the same request every time, and evenly spread over those who came one after the other.
        draw = request.order[-1] * GOLDEN_RATIO % 1.0 if request.order else 0.5
        return math.ceil(shares[shorter + int(draw * (len(shares) - shorter))] * most)

    def ended(self, request: Request) -> None:
        if most := request.sampling.max_tokens:
            self._last.append(len(request.output_token_ids) / most)
            self._shares = sorted(self._last)
