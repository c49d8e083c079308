"""How a GPU holds a model, in any format that people deploy: a generic holding, for planning.

Quantized formats are those that engines serve: matrices of the layers quantized, tables, head, routers, norms and biases dense.
int4: groups of 128 inputs with an fp16 scale (GPTQ, arXiv:2210.17323, symmetric). fp8 and int8: one float32 scale for each
output (LLM.int8(), arXiv:2208.07339, vector-wise).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from pagoda.errors import InvalidValueError
from pagoda.planning.costs import head_weight, is_product
from pagoda.planning.cuda_arena import uniform_arena_bytes
from pagoda.planning.cuda_formats import CUDA_FORMATS
from pagoda.planning.cuda_holding import cuda_workspace
from pagoda.planning.formats import FORMATS
from pagoda.planning.holding import FormatOf, HeldFormat, Holding, format_in, format_name, weight_bytes
from pagoda.planning.kv_format import KV_FORMATS, KVHeld
from pagoda.planning.model_spec import ModelSpec, WeightSpec


@dataclass(frozen=True, slots=True)
class ScaledFormat:
    """`group` inputs take `group_bytes`, scales included; a row has `row_bytes_more` beside them. Last groups are padded."""

    name: str
    group: int
    group_bytes: int
    scale_bytes: int = 0

    def tensor_bytes(self, shape: Sequence[int]) -> int:
        return math.prod(shape[:-1]) * self.row_bytes(shape)

    def row_bytes(self, shape: Sequence[int]) -> int:
        return -(-shape[-1] // self.group) * self.group_bytes + self.scale_bytes


DENSE = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
SCALED = {
    "fp8": ScaledFormat("fp8", 1, 1, scale_bytes=4),
    "int8": ScaledFormat("int8", 1, 1, scale_bytes=4),
    "int4": ScaledFormat("int4", 128, 66),
}
# Formats of files by blocks; a row's last block may be incomplete once its matrix is split over devices.
_SCALED_FILES: dict[str, HeldFormat] = {
    **{
        name: ScaledFormat(name, kind.block_elements, kind.block_bytes)
        for name, kind in FORMATS.items()
        if kind.block_elements > 1
    },
    "fp8": SCALED["fp8"],
    "fp8_block": CUDA_FORMATS["fp8_block"],
}
GPU_WEIGHT_FORMATS = (*DENSE, *SCALED)


def gpu_holding(
    spec: ModelSpec, stored: FormatOf, wanted: str | None, kv_format: str | None, block_size: int = 16
) -> Holding:
    """stored: formats of the files; wanted: one of `GPU_WEIGHT_FORMATS`, or None: as stored.
    kv_format: of `KV_FORMATS`, one for both ("fp8") or K's and V's ("fp8/int4"); None: as activations.
    Raises `InvalidValueError` for another format.
    """
    held = gpu_format(spec, stored, wanted)
    element_bytes = FORMATS[DENSE[activation_format(spec, held)]].block_bytes
    kv_held = parse_kv_format(activation_format(spec, held) if kv_format is None else kv_format)
    return Holding(
        spec,
        held,
        weight_bytes(spec, held),
        kv_held,
        cuda_workspace(spec, partial(uniform_arena_bytes, spec, element_bytes), kv_held, block_size),
        loading_bytes=0,  # files are mapped on the host
        loading_note="",
    )


def gpu_format(spec: ModelSpec, stored: FormatOf, wanted: str | None) -> Callable[[WeightSpec], str | HeldFormat]:
    """The format each weight is held in. Raises `InvalidValueError` for one that is not in `GPU_WEIGHT_FORMATS`."""
    if wanted is None:

        def as_stored(weight: WeightSpec) -> str | HeldFormat:
            kind = format_in(stored, weight)
            return _SCALED_FILES.get(kind, kind) if isinstance(kind, str) else kind

        return as_stored
    one_of("--weight-format", wanted, GPU_WEIGHT_FORMATS)
    if wanted in DENSE:
        dense = DENSE[wanted]
        return lambda _: dense
    head, scaled = head_weight(spec), SCALED[wanted]

    def held(weight: WeightSpec) -> str | HeldFormat:
        quantized = is_product(weight) and weight is not head and not weight.name.endswith(".router")
        return scaled if quantized else "BF16"

    return held


def activation_format(spec: ModelSpec, held: FormatOf) -> str:
    """That of the head where it is dense, else bf16."""
    name = format_name(held, head_weight(spec))
    return next((typed for typed, dense in DENSE.items() if dense == name), "bf16")


def parse_kv_format(text: str) -> KVHeld:
    """Raises `InvalidValueError` for what is not one of `KV_FORMATS`, or two with a stroke between them."""
    names = text.split("/")
    if len(names) > 2:
        raise InvalidValueError("--kv-format", text, "one format, or K's and V's as in fp8/int4")
    keys, values = (KV_FORMATS[one_of("--kv-format", name, KV_FORMATS)] for name in (names[0], names[-1]))
    return keys if keys is values else (keys, values)


def one_of(field: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        raise InvalidValueError(field, value, f"one of {', '.join(known)}")
    return value
