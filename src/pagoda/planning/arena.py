"""An arena: buffers whose lives are known beforehand share one piece of memory."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """num_bytes that are needed from the command `first` to the command `last`, both included."""

    num_bytes: int
    first: int
    last: int

    def meets(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Offsets of the buffers, multiples of 64, so that no two that live at the same time overlap; and the arena's size.

    Greedy by size (Pisarchyk and Lee, arXiv:2001.03288, "greedy by size for offset calculation"): the largest first, each
    at the lowest place that those already placed leave free.
    """
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, int]] = []  # (offset, end, index), ascending
    size = 0
    for index in sorted(range(len(buffers)), key=lambda index: (-buffers[index].num_bytes, index)):
        buffer, offset = buffers[index], 0
        for start, end, other in placed:
            if not buffer.meets(buffers[other]):
                continue
            if start - offset >= buffer.num_bytes:
                break
            offset = max(offset, end)
        end = offset + -(-buffer.num_bytes // ALIGNMENT) * ALIGNMENT
        offsets[index] = offset
        insort(placed, (offset, end, index))
        size = max(size, end)
    return offsets, size
