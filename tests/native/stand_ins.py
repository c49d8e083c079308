"""Weights without numbers, so that recording is tested without the native module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pagoda.loading.checkpoint import StoredTensor
from pagoda.models.family import Model
from pagoda.models.registry import family_for
from pagoda.models.weights import load_model
from pagoda.ops.cpu import Form
from pagoda.ops.cpu_weights import CpuWeight
from pagoda.planning.model_spec import ModelSpec
from tests.models.fakes import FakeCheckpoint


@dataclass(frozen=True, eq=False)
class FakeMatrix:
    in_features: int
    out_features: int
    input_forms: list[Form]


class FakeWeightOps:
    """Matrices that want their inputs in `forms`."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = list(forms)

    def vector(self, stored: StoredTensor) -> CpuWeight:
        return CpuWeight(np.ones(stored.info.shape, np.float32))

    def table(self, stored: StoredTensor) -> CpuWeight:
        return self.linear([stored])

    def linear(self, segments: Sequence[StoredTensor], biases: Sequence[StoredTensor] = ()) -> CpuWeight:
        rows = tuple(stored.info.shape[0] for stored in segments)
        return matrix(segments[0].info.shape[1], rows, self.forms)


def matrix(in_features: int, segments: Sequence[int], forms: Sequence[Form]) -> CpuWeight:
    return CpuWeight(cast(Any, FakeMatrix(in_features, sum(segments), list(forms))), tuple(segments))


def fake_model(config: Mapping[str, Any], forms: Sequence[Form]) -> tuple[ModelSpec, Model[CpuWeight]]:
    checkpoint = FakeCheckpoint(config)
    family = family_for(checkpoint.config)
    spec = family.spec(checkpoint.config)
    return spec, load_model(checkpoint, family, spec, FakeWeightOps(forms))


class FakeProgram:
    """Writes down what it is given."""

    def __init__(self) -> None:
        self.tensors: list[tuple[int, dict[str, int]]] = []
        self.ropes: list[np.ndarray] = []
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def tensor(self, width: int, **forms: int) -> int:
        self.tensors.append((width, forms))
        return len(self.tensors) - 1

    def rope(self, inverse_frequencies: np.ndarray) -> int:
        self.ropes.append(inverse_frequencies)
        return len(self.ropes) - 1

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, arguments))
