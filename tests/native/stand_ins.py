"""Weights without numbers, so that recording is tested without the native module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pagoda.models.family import Model
from pagoda.models.registry import family_for
from pagoda.ops.cpu_weights import CpuWeight
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.native_formats import Form


@dataclass(frozen=True, eq=False)
class FakeMatrix:
    in_features: int
    out_features: int
    input_forms: list[Form]


class FakeWeights:
    """`Weights` of a spec; matrices want their inputs in `forms`, or in those that a function of the weight says."""

    def __init__(self, spec: ModelSpec, forms: Sequence[Form] | Callable[[WeightSpec], Form]) -> None:
        self.weights = {weight.name: weight for weight in spec.weights}
        self.forms = forms

    def vector(self, name: str) -> CpuWeight:
        return CpuWeight(np.ones(self.weights[name].shape, np.float32))

    def table(self, name: str) -> CpuWeight:
        return self.linear([name])

    def head(self, name: str) -> CpuWeight:
        return self.linear([name])

    def linear(self, names: Sequence[str], biases: Sequence[str] = ()) -> CpuWeight:
        weights = [self.weights[name] for name in names]
        forms = sorted({self.forms(weight) for weight in weights}) if callable(self.forms) else self.forms
        return matrix(weights[0].shape[1], [weight.shape[0] for weight in weights], forms)


def matrix(in_features: int, segments: Sequence[int], forms: Sequence[Form]) -> CpuWeight:
    return CpuWeight(cast(Any, FakeMatrix(in_features, sum(segments), list(forms))), tuple(segments))


def fake_model(
    config: Mapping[str, Any], forms: Sequence[Form] | Callable[[WeightSpec], Form]
) -> tuple[ModelSpec, Model[CpuWeight]]:
    family = family_for(config)
    spec = family.spec(config)
    return spec, family.build(spec, FakeWeights(spec, forms))


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
