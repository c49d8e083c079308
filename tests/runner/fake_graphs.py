"""CUDA graphs as far as a test without a GPU needs them: captured work is not done, and done again when it is replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class FakeGraph:
    work: Callable[[], None]
    replays: int = 0

    def replay(self) -> None:
        self.replays += 1
        self.work()


@dataclass
class FakeBackend:
    """fails: whether nothing can be captured."""

    fails: bool = False
    graphs: list[FakeGraph] = field(default_factory=list)

    def capture(self, work: Callable[[], None]) -> FakeGraph:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.graphs.append(FakeGraph(work))
        return self.graphs[-1]
