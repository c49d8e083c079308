"""CUDA graphs of decode steps: what takes hundreds of launches from the host becomes one."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import torch

logger = logging.getLogger(__name__)


class Graph(Protocol):
    """Captured work."""

    def replay(self) -> None:
        """Do it again, with what is now in the memory that it reads."""
        ...


class GraphBackend(Protocol):
    def capture(self, work: Callable[[], None]) -> Graph:
        """Record what `work` launches, without doing it. Raises `RuntimeError` where something in it cannot be captured."""
        ...


class CudaGraphBackend:
    """The current stream's work, captured by CUDA; for a stream that is not the default one."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], None]) -> Graph:
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile. Unlike `torch.cuda.graph` this does not wait for it first.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # The capture is spoiled, but has to be ended all the same.
                graph.capture_end()
            raise
        graph.capture_end()
        return graph


class StepGraphs:
    """One graph for each number of rows that decode steps have had.

    A step runs eagerly until its graph is there. As it has run before, all of its kernels are compiled and loaded when it is
    captured, which cannot be done meanwhile.
    problem: why no more graphs are captured; steps run eagerly then.
    """

    def __init__(self, backend: GraphBackend | None) -> None:
        """backend: None where there are no graphs."""
        self._backend = backend
        self._graphs: dict[int, Graph] = {}
        self._eager: dict[int, Callable[[], None]] = {}
        self._uses: Counter[int] = Counter()
        self.problem: str | None = None if backend is not None else "the device has no graphs"

    @property
    def captured(self) -> list[int]:
        """Numbers of rows, ascending."""
        return sorted(self._graphs)

    @property
    def has_more(self) -> bool:
        """Whether there is something to capture."""
        return bool(self._eager) and self.problem is None

    def run(self, rows: int, work: Callable[[], None]) -> None:
        """A decode step with so many rows: `work` launches it, or its graph does; it is the same for as many rows each time."""
        graph = self._graphs.get(rows)
        if graph is not None:
            graph.replay()
            return
        work()
        self._eager[rows] = work
        self._uses[rows] += 1

    def capture_one(self) -> None:
        """Capture the step that has run eagerly most often. After a failure never again."""
        if self._backend is None or not self.has_more:
            return
        rows = max(self._eager, key=lambda each: self._uses[each])
        try:
            self._graphs[rows] = self._backend.capture(self._eager.pop(rows))
        except RuntimeError as error:
            self.problem = f"a decode step of {rows} rows could not be captured: {error}"
            logger.warning("%s; steps are launched kernel by kernel", self.problem)

    def close(self) -> None:
        self._graphs.clear()
        self._eager.clear()
