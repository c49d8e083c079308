"""How the native path holds a model: packed matrices in the formats they come in, float32 vectors, K and V in bf16 or int8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from pagoda.errors import InvalidValueError, UnsupportedModelError
from pagoda.planning.formats import (
    FP8_FORMATS,
    QUANTIZED,
    loaded_format,
    table_quantization,
    tensor_bytes,
    weight_format,
)
from pagoda.planning.holding import FormatOf, Holding, format_name, weight_bytes
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.native_formats import (
    INT8_KV_MOST,
    INT8_KV_MULTIPLE,
    NATIVE_KV_FORMATS,
    Form,
    PackedFormat,
    has_int8_kv,
    input_form,
)
from pagoda.planning.native_workspace import arena_bytes, native_workspace_bytes


def native_holding(
    spec: ModelSpec, stored: FormatOf, quantization: str | None, threads: int, kv_dtype: str = "bfloat16"
) -> Holding:
    """stored: the formats of the files (one for all, or by each weight's canonical name).
    quantization: None, "int8" or "int4", for what is stored dense. kv_dtype: one of `NATIVE_KV_FORMATS`.
    Raises `UnsupportedModelError` for heads that the kernels do not have, `InvalidValueError` for those that they do not
    have in that format of the KV cache.
    """
    for layer in spec.layers:
        if layer.attention.head_dim % 2:  # K is read in pairs
            raise UnsupportedModelError("head_dim on the CPU", layer.attention.head_dim, ("even ones",))
    if kv_dtype == "int8" and not has_int8_heads(spec):
        widths = ", ".join(str(width) for width in sorted({layer.attention.head_dim for layer in spec.layers}))
        heads = f"multiples of {INT8_KV_MULTIPLE} up to {INT8_KV_MOST}"
        raise InvalidValueError("kv_cache_dtype", kv_dtype, f"bfloat16 for a head_dim of {widths}; int8 has {heads}")
    return replace(
        _holding(spec, stored, quantization, threads, kv_dtype),
        alternatives=_alternatives(spec, stored, quantization, threads, kv_dtype),
    )


def has_int8_heads(spec: ModelSpec) -> bool:
    """Whether the KV cache of the model can be int8."""
    return all(has_int8_kv(layer.attention.head_dim) for layer in spec.layers)


def _holding(spec: ModelSpec, stored: FormatOf, quantization: str | None, threads: int, kv_dtype: str) -> Holding:
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
        NATIVE_KV_FORMATS[kv_dtype],
        workspace,
        loading_bytes=_loading_bytes(spec, stored, quantization),
        loading_note="copies of the largest while they are loaded",
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
    are quantized or widened from fp8: a copy of each of the two that are then at hand at most. A table is copied only for the
    latter reasons."""
    sizes = [0]
    for weight in spec.weights:
        kind = format_name(stored, weight)
        is_copied = weight.part != "embedding" or quantization or kind in FP8_FORMATS
        if len(weight.shape) >= 2 and is_copied:
            copied = "BF16" if kind in FP8_FORMATS else kind
            sizes.append(tensor_bytes(weight.shape, copied) * (1 if weight.part == "embedding" else 2))
    return max(sizes)


def _alternatives(
    spec: ModelSpec, stored: FormatOf, quantization: str | None, threads: int, kv_dtype: str
) -> tuple[tuple[str, str, Holding], ...]:
    """Those that cost the text least come first."""
    alternatives = []
    if kv_dtype == "bfloat16" and has_int8_heads(spec):
        alternatives.append(("kv_cache_dtype", "int8", _holding(spec, stored, quantization, threads, "int8")))
    dense = any(
        len(weight.shape) >= 2 and weight_format(format_name(stored, weight)).block_elements == 1
        for weight in spec.weights
    )
    if quantization is None and dense:
        alternatives += [("quantization", name, _holding(spec, stored, name, threads, kv_dtype)) for name in QUANTIZED]
    return tuple(alternatives)
