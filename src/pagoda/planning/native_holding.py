"""How the native path holds a model: packed matrices in the formats they come in, float32 vectors, K and V in bf16."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pagoda.errors import UnsupportedModelError
from pagoda.planning.formats import QUANTIZED, loaded_format, table_quantization, tensor_bytes, weight_format
from pagoda.planning.holding import FormatOf, Holding, format_name, weight_bytes
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.native_formats import Form, PackedFormat, input_form
from pagoda.planning.native_workspace import arena_bytes, native_workspace_bytes

KV_ELEMENT_BYTES = 2


def native_holding(spec: ModelSpec, stored: FormatOf, quantization: str | None, threads: int) -> Holding:
    """stored: the formats of the files (one for all, or by each weight's canonical name).
    quantization: None, "int8" or "int4", for what is stored dense.
    Raises `UnsupportedModelError` for heads that the kernels do not have.
    """
    for layer in spec.layers:
        if layer.attention.head_dim % 2:  # K is read in pairs
            raise UnsupportedModelError("head_dim on the CPU", layer.attention.head_dim, ("even ones",))
    held = native_format(stored, quantization)

    def form_of(weight: WeightSpec) -> Form:
        return input_form(_loaded(stored, quantization, weight))

    @cache
    def arena_of_a_token() -> int:
        return arena_bytes(spec, form_of, 1)

    def workspace(*, max_batched_tokens: int, max_num_seqs: int, max_model_len: int) -> int:
        return native_workspace_bytes(
            spec,
            # Rows are whole cache lines, so the arena of many tokens is as many times that of one.
            max_batched_tokens * arena_of_a_token(),
            threads=threads,
            max_batched_tokens=max_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
        )

    return Holding(
        spec,
        held,
        weight_bytes(spec, held),
        KV_ELEMENT_BYTES,
        workspace,
        loading_bytes=_loading_bytes(spec, stored, quantization),
        loading_note="copies of the largest while they are loaded",
        alternatives=_alternatives(spec, stored, quantization, threads),
    )


def native_format(stored: FormatOf, quantization: str | None) -> Callable[[WeightSpec], str | PackedFormat]:
    """The format each weight is held in, given those of the files."""

    def held(weight: WeightSpec) -> str | PackedFormat:
        if len(weight.shape) == 1:
            # A norm's gain; or a bias, which lies beside its matrix.
            return "F32" if weight.part == "norm" else PackedFormat("F32")
        return PackedFormat(_loaded(stored, quantization, weight))

    return held


def _loaded(stored: FormatOf, quantization: str | None, weight: WeightSpec) -> str:
    wanted = table_quantization(quantization) if weight.part == "embedding" else quantization
    return loaded_format(format_name(stored, weight), weight.shape[-1], wanted)


def _loading_bytes(spec: ModelSpec, stored: FormatOf, quantization: str | None) -> int:
    """Matrices are packed from the mapped file itself, but for those whose rows are put into another order and those that
    are quantized: a copy of each of the two that are then at hand at most. A table is copied only to be quantized."""
    matrices = [weight for weight in spec.weights if len(weight.shape) >= 2]
    sizes = [
        tensor_bytes(weight.shape, format_name(stored, weight)) * (1 if weight.part == "embedding" else 2)
        for weight in matrices
        if weight.part != "embedding" or quantization
    ]
    return max(sizes, default=0)


def _alternatives(
    spec: ModelSpec, stored: FormatOf, quantization: str | None, threads: int
) -> tuple[tuple[str, str, Holding], ...]:
    dense = any(
        len(weight.shape) >= 2 and weight_format(format_name(stored, weight)).block_elements == 1
        for weight in spec.weights
    )
    if quantization is not None or not dense:
        return ()
    return tuple(("quantization", name, native_holding(spec, stored, name, threads)) for name in QUANTIZED)
