"""How a backend holds a model in memory: all that the memory formula must know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pagoda.planning.formats import DENSE_FORMATS, tensor_bytes
from pagoda.planning.kv_format import KVHeld
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.workspace import activation_bytes


class HeldFormat(Protocol):
    """A way of holding weights that no file format names: packed for the CPU, or with scales of a GPU's own layout."""

    @property
    def name(self) -> str: ...

    def tensor_bytes(self, shape: Sequence[int]) -> int: ...

    def row_bytes(self, shape: Sequence[int]) -> int:
        """Of one row of a table."""
        ...


FormatOf = str | Mapping[str, str] | Callable[[WeightSpec], str | HeldFormat]


class Workspace(Protocol):
    """Bytes of the largest step. It never shrinks as a limit grows."""

    def __call__(self, *, max_batched_tokens: int, max_num_seqs: int, max_model_len: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Holding:
    """One model in one backend.

    format_of: of the weights as they are held (see `weight_bytes`). weight_bytes: what they take.
    kv_held: K and V in the cache (see `kv_format.KVHeld`).
    loading_bytes: what loading takes beside the weights, at most; loading_note: what that is.
    alternatives: settings under which the backend would hold the model in less, the best first: (field, value, holding).
    """

    spec: ModelSpec
    format_of: FormatOf
    weight_bytes: int
    kv_held: KVHeld
    workspace: Workspace
    loading_bytes: int
    loading_note: str
    alternatives: tuple[tuple[str, str, Holding], ...] = ()


def torch_holding(spec: ModelSpec, element_bytes: int) -> Holding:
    """The torch reference: weights dense; weights, activations and KV cache in a compute dtype of so many bytes."""
    held = held_format(element_bytes)
    return Holding(
        spec,
        held,
        weight_bytes(spec, held),
        element_bytes,
        partial(activation_bytes, spec, element_bytes=element_bytes),
        # One weight at a time is dequantized to float32, with as much again on the way.
        loading_bytes=max(weight.num_elements for weight in spec.weights) * 2 * 4,
        loading_note="the largest of them twice more in float32 while they are loaded",
        alternatives=(("dtype", "bfloat16", torch_holding(spec, 2)),) if element_bytes == 4 else (),
    )


def held_format(element_bytes: int) -> Callable[[WeightSpec], str]:
    """How the torch reference holds weights: all dense, in the compute dtype, but norms in float32."""
    dense = "F32" if element_bytes == 4 else "BF16"
    return lambda weight: "F32" if weight.part == "norm" else dense


def weight_bytes(spec: ModelSpec, format_of: FormatOf) -> int:
    """Bytes of all weights, tied ones once.

    format_of: one dtype or format for all ("bfloat16", "Q8_0"), or each weight's by its canonical name (a mapping) or
    from its `WeightSpec` (a function; `held_format` is the one of the torch reference).
    Raises KeyError for a name the mapping lacks, `UnsupportedModelError` for an unknown format, ValueError for a row
    that is not whole blocks.
    """
    return sum(weight_size(weight, format_of) for weight in spec.weights)


def weight_size(weight: WeightSpec, format_of: FormatOf) -> int:
    """Bytes of one weight."""
    held = format_in(format_of, weight)
    return tensor_bytes(weight.shape, held) if isinstance(held, str) else held.tensor_bytes(weight.shape)


def row_size(weight: WeightSpec, format_of: FormatOf) -> int:
    """Bytes of one row of a table."""
    held = format_in(format_of, weight)
    return tensor_bytes(weight.shape[-1:], held) if isinstance(held, str) else held.row_bytes(weight.shape)


def format_in(format_of: FormatOf, weight: WeightSpec) -> str | HeldFormat:
    """The format of one weight under any of the three kinds of `format_of`."""
    if isinstance(format_of, str):
        held: str | HeldFormat = format_of
    elif isinstance(format_of, Mapping):
        held = format_of[weight.name]
    else:
        held = format_of(weight)
    return DENSE_FORMATS.get(held, held) if isinstance(held, str) else held


def format_name(format_of: FormatOf, weight: WeightSpec) -> str:
    """The name of that format."""
    held = format_in(format_of, weight)
    return held if isinstance(held, str) else held.name
