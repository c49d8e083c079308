"""From a checkpoint to a model: the inventory is held against the spec first, then weights are read one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, Protocol

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import Checkpoint, StoredTensor, TensorInfo
from pagoda.models.family import Family, Model, Source
from pagoda.ops.interface import W, WeightOps
from pagoda.planning.formats import weight_format
from pagoda.planning.model_spec import ModelSpec

# progress(done, total): bytes of the files that are loaded so far, and of all that will be.
Progress = Callable[[int, int], None]
_SHOWN = 3


class Inventory(Protocol):
    """What is asked of a checkpoint here: which tensors there are."""

    @property
    def kind(self) -> Literal["huggingface", "gguf"]: ...

    @property
    def name(self) -> str: ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...


def check_inventory(checkpoint: Inventory, family: Family, spec: ModelSpec) -> dict[str, str]:
    """For each weight of the spec the tensor of the checkpoint that holds it. Reads nothing but names and shapes.

    Raises `ModelFileError` with every tensor that is missing, has another shape than the config says, or is neither
    needed nor knowingly ignored; `UnsupportedModelError` for a tensor in an unknown format.
    """
    sources = family.sources(spec)
    found: dict[str, str] = {}
    missing: list[str] = []
    misshapen: list[str] = []
    for weight in spec.weights:
        names, transform = sources[weight.name].of(checkpoint.kind)
        name = next((name for name in names if name in checkpoint.tensors), None)
        if name is None:
            missing.append(names[0])
            continue
        found[weight.name] = name
        info, wanted = checkpoint.tensors[name], transform.stored_shape(weight.shape)
        weight_format(info.format)
        if info.shape != wanted:
            misshapen.append(f"{name} is {_shape(info.shape)} where the config means {_shape(wanted)}")
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in family.ignored(spec)) or r"(?!)")
    used = set(found.values())
    # These names are the file's own, so they are shown with care.
    unknown = [shown(name) for name in checkpoint.tensors if name not in used and not ignored.fullmatch(name)]
    faults = [
        _listed("missing", missing),
        _listed("with another shape than the config's", misshapen),
        _listed(f"unknown to the family {family.name}", unknown),
    ]
    if any(faults):
        raise ModelFileError(f"{checkpoint.name}: " + "; ".join(fault for fault in faults if fault))
    return found


def load_model(
    checkpoint: Checkpoint,
    family: Family,
    spec: ModelSpec,
    weight_ops: WeightOps[W],
    progress: Progress | None = None,
) -> Model[W]:
    """Read every weight into the backend's form and build the model.

    Raises what `check_inventory` raises, before any memory is taken.
    """
    names = check_inventory(checkpoint, family, spec)
    return family.build(spec, _CheckpointWeights(checkpoint, names, family.sources(spec), weight_ops, progress))


class _CheckpointWeights(Generic[W]):
    """`Weights` read from a checkpoint when they are asked for."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        names: dict[str, str],
        sources: dict[str, Source],
        weight_ops: WeightOps[W],
        progress: Progress | None,
    ) -> None:
        self._checkpoint, self._names, self._sources = checkpoint, names, sources
        self._weight_ops, self._progress = weight_ops, progress
        self._total = sum(checkpoint.tensors[name].num_bytes for name in names.values())
        self._done = 0

    def vector(self, name: str) -> W:
        return self._taken(self._weight_ops.vector(self._read(name)), name)

    def table(self, name: str) -> W:
        return self._taken(self._weight_ops.table(self._read(name)), name)

    def head(self, name: str) -> W:
        return self._taken(self._weight_ops.head(self._read(name)), name)

    def linear(self, names: Sequence[str], biases: Sequence[str] = ()) -> W:
        segments = [self._read(name) for name in names]
        return self._taken(self._weight_ops.linear(segments, [self._read(name) for name in biases]), *names, *biases)

    def _read(self, name: str) -> StoredTensor:
        stored = self._checkpoint.read(self._names[name])
        _, transform = self._sources[name].of(self._checkpoint.kind)
        return transform.apply(stored)

    def _taken(self, weight: W, *names: str) -> W:
        for name in names:
            self._checkpoint.release(self._names[name])
        self._done += sum(self._checkpoint.tensors[self._names[name]].num_bytes for name in names)
        if self._progress is not None:
            self._progress(self._done, self._total)
        return weight


def _shape(shape: Sequence[int]) -> str:
    return "×".join(f"{size}" for size in shape) or "a single number"


def _listed(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{len(names):,} {'tensor' if len(names) == 1 else 'tensors'} {what} ({', '.join(names[:_SHOWN])}{more})"
