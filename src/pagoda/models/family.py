"""What a model family is. docs/adding-a-family.md shows how to write one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from pagoda.models.transforms import AS_STORED, Transform
from pagoda.ops.interface import B, Ops, T, W
from pagoda.planning.model_spec import ModelSpec

W_out = TypeVar("W_out", covariant=True)


@dataclass(frozen=True, slots=True)
class Source:
    """Where files keep one weight.

    huggingface: its names in safetensors files, of which one is there. gguf: its name in a GGUF file.
    """

    huggingface: tuple[str, ...]
    gguf: str
    from_huggingface: Transform = AS_STORED
    from_gguf: Transform = AS_STORED

    def of(self, kind: Literal["huggingface", "gguf"]) -> tuple[tuple[str, ...], Transform]:
        """The names in files of that kind, and what to do with what is there."""
        return ((self.gguf,), self.from_gguf) if kind == "gguf" else (self.huggingface, self.from_huggingface)


class Weights(Protocol[W_out]):
    """A model's weights by canonical name (`WeightSpec.name`), in the backend's form. Each is asked for once."""

    def vector(self, name: str) -> W_out: ...

    def table(self, name: str) -> W_out: ...

    def head(self, name: str) -> W_out: ...

    def linear(self, names: Sequence[str], biases: Sequence[str] = ()) -> W_out:
        """Several matrices, stacked along their outputs, as one product."""
        ...


class Model(ABC, Generic[W]):
    """A model with its weights in some backend's form, run by that backend's ops."""

    @abstractmethod
    def forward(self, ops: Ops[T, W, B], batch: B) -> T:
        """One step: logits of the rows the batch selects, [rows, vocab_size] in float32."""


class Family(ABC):
    """How models of one structure are described, found in files, and run.

    name: the family's own name. model_types: what configs call its members, in `model_type`, for both kinds of files.
    """

    name: str
    model_types: tuple[str, ...]

    @abstractmethod
    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        """The model a config describes. Raises `ModelFileError` for a config that is incomplete, contradicts itself or is
        absurd, `UnsupportedModelError` for one that needs what there is not."""

    @abstractmethod
    def sources(self, spec: ModelSpec) -> dict[str, Source]:
        """For each weight of the spec where files keep it."""

    @abstractmethod
    def ignored(self, spec: ModelSpec) -> tuple[str, ...]:
        """Regular expressions of tensors that files may hold and the model does not need (matched as a whole)."""

    @abstractmethod
    def build(self, spec: ModelSpec, weights: Weights[W]) -> Model[W]:
        """The model, its weights taken from `weights`."""
