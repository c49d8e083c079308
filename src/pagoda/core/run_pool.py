"""RunPool: KV blocks handed out as runs of consecutive ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from pagoda.errors import InvariantError


class RunPool:
    """Blocks 0 … num_blocks - 1. A run is taken from the first gap that is long enough (first fit; Knuth, TAOCP vol. 1, 2.5),
    and given back as a whole, when it becomes one gap with the free blocks on both of its sides.

    Both take time in the number of gaps, of which there is at most one more than there are runs.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        # Gaps are [start, end), in order, and never touch each other.
        self._gaps: list[tuple[int, int]] = [(0, num_blocks)] if num_blocks else []
        self._runs: dict[int, int] = {}  # start → end of those handed out

    @property
    def largest_gap(self) -> int:
        return max([end - start for start, end in self._gaps], default=0)

    def is_free(self, block_id: int) -> bool:
        place = bisect_right(self._gaps, (block_id, self.num_blocks)) - 1
        return place >= 0 and self._gaps[place][0] <= block_id < self._gaps[place][1]

    def allocate(self, count: int) -> range | None:
        """`count` consecutive blocks, at least one; None when no gap is that long."""
        for place, (start, end) in enumerate(self._gaps):
            if end - start >= count:
                self._gaps[place : place + 1] = [(start + count, end)] if end - start > count else []
                self._runs[start] = start + count
                self.num_free -= count
                return range(start, start + count)
        return None

    def release(self, run: range) -> None:
        """Give back what `allocate` returned. Raises `InvariantError` for anything else."""
        if self._runs.get(run.start) != run.stop or run.step != 1:
            raise InvariantError(
                f"blocks {run.start} to {run.stop - 1} were released, but are no run that somebody holds"
            )
        del self._runs[run.start]
        self.num_free += len(run)
        start, end, gaps = run.start, run.stop, self._gaps
        first = last = bisect_right(gaps, (start, end))
        if first > 0 and gaps[first - 1][1] == start:
            first -= 1
            start = gaps[first][0]
        if last < len(gaps) and gaps[last][0] == end:
            end = gaps[last][1]
            last += 1
        gaps[first:last] = [(start, end)]

    def broken(self, held: Iterable[range]) -> Iterator[str]:
        """What is wrong: gaps and runs must make up all blocks, each once, and the runs must be those that somebody holds."""
        if sorted((run.start, run.stop) for run in held) != sorted(self._runs.items()):
            yield "the runs handed out are not just those that are held"
        end = 0
        for start, stop in [*sorted([*self._gaps, *self._runs.items()]), (self.num_blocks, self.num_blocks)]:
            if start != end:
                yield f"blocks {min(start, end)} to {max(start, end) - 1} are {'in two places' if start < end else 'lost'}"
            end = stop
        if self.num_free != sum(stop - start for start, stop in self._gaps):
            yield f"{self.num_free} blocks are counted as free, but the gaps have others"
