"""An arena: buffers whose lives are known beforehand share one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """num_bytes that are needed from the command `first` to the command `last`, both included."""

    num_bytes: int
    first: int
    last: int


def place(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Offsets of the buffers, multiples of 64, so that no two that live at the same time overlap; and the arena's size.

    Greedy by size (Pisarchyk and Lee, arXiv:2001.03288, "greedy by size for offset calculation"): the largest first, each
    at the lowest place that those already placed leave free.
    """
    offsets, ends = [0] * len(buffers), [0] * len(buffers)
    alive: list[list[int]] = [[] for _ in range(1 + max((buffer.last for buffer in buffers), default=-1))]
    for index in sorted(range(len(buffers)), key=lambda index: (-buffers[index].num_bytes, index)):
        buffer, offset = buffers[index], 0
        meanwhile = alive[buffer.first : buffer.last + 1]
        for other in sorted(
            set().union(*meanwhile), key=offsets.__getitem__
        ):  # those placed that live at the same time
            if offsets[other] - offset >= buffer.num_bytes:
                break
            offset = max(offset, ends[other])
        offsets[index], ends[index] = offset, offset + -(-buffer.num_bytes // ALIGNMENT) * ALIGNMENT
        for now in meanwhile:
            now.append(index)
    return offsets, max(ends, default=0)
