"""Weights in fp8 (E4M3): what a configuration says of them, and which tensor holds the scales of which weight.

Three ways to write them down are known: `quant_method` "fp8" with `weight_block_size` (DeepSeek-V3, arXiv:2412.19437) or
without, and "compressed-tensors" in the format "float-quantized". What they say of activations and of the KV cache is not
followed: weights are multiplied with activations in the number format that the model runs in, which loses nothing, and the
cache is as `kv_cache_dtype` says. So tensors with scales for those are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pagoda.errors import ModelFileError, UnsupportedModelError, shown
from pagoda.loading.checkpoint import TensorInfo
from pagoda.planning.formats import FP8_BLOCK

STORED = "F8_E4M3"
KNOWN = (
    "none",
    "fp8 and compressed-tensors float-quantized (E4M3 weights, with a scale for each tensor, each output, or "
    f"{FP8_BLOCK} × {FP8_BLOCK} of them)",
    "the formats of GGUF files",
)
_SCALE_NAMES = ("{}_scale_inv", "{}_scale")
_OF_ACTIVATIONS = re.compile(r".*\.(?:input|output|activation|q|k|v|kv)_scale")
_SCALE_DTYPES = ("F32", "BF16", "F16")


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """by_block: a scale for 128 × 128 weights; else for each output, or for all."""

    by_block: bool

    @property
    def format(self) -> str:
        return "fp8_block" if self.by_block else "fp8"


def fp8_scheme(config: Mapping[str, Any]) -> Fp8Scheme | None:
    """None where weights are not quantized by the configuration, or in a way that `check_quantization` refuses."""
    try:
        return check_quantization(config)
    except UnsupportedModelError:
        return None


def check_quantization(config: Mapping[str, Any]) -> Fp8Scheme | None:
    """None where weights are not quantized by the configuration. Raises `UnsupportedModelError` for a way that is not known."""
    described = config.get("quantization_config")
    if not described:
        return None
    if not isinstance(described, Mapping):
        raise UnsupportedModelError("quantization method", described, KNOWN)
    method = described.get("quant_method")
    if method == "fp8":
        return _plain(described)
    if method == "compressed-tensors":
        return _compressed(described)
    raise UnsupportedModelError("quantization method", method, KNOWN)


def _plain(described: Mapping[str, Any]) -> Fp8Scheme:
    _must_be(described, "fmt", None, "e4m3")
    block = described.get("weight_block_size")
    if block is not None:
        _must_be(described, "weight_block_size", [FP8_BLOCK, FP8_BLOCK])
    return Fp8Scheme(by_block=block is not None)


def _compressed(described: Mapping[str, Any]) -> Fp8Scheme:
    _must_be(described, "format", "float-quantized")
    for name, nothing in (("sparsity_config", "dense"), ("transform_config", None)):
        more = described.get(name)
        if more and not (isinstance(more, Mapping) and more.get("format") == nothing and not more.get("config_groups")):
            raise UnsupportedModelError(f"quantization_config.{name}", more, ("none",))
    groups = described.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise UnsupportedModelError("quantization_config.config_groups", groups, ("an object of groups",))
    strategies = {_strategy(group) for group in groups.values()}
    if "block" in strategies and len(strategies) > 1:
        raise UnsupportedModelError(
            "mixed strategies of weights", sorted(strategies), ("block alone", "tensor, channel")
        )
    return Fp8Scheme(by_block="block" in strategies)


def _strategy(group: object) -> str:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise UnsupportedModelError("quantization_config.config_groups", group, ("groups with weights",))
    _must_be(weights, "num_bits", 8)
    _must_be(weights, "type", "float")
    _must_be(weights, "symmetric", None, True)
    _must_be(weights, "strategy", "tensor", "channel", "block")
    if weights["strategy"] == "block":
        _must_be(weights, "block_structure", [FP8_BLOCK, FP8_BLOCK])
    return str(weights["strategy"])


def _must_be(described: Mapping[str, Any], name: str, *known: object) -> None:
    value = described.get(name)
    if value not in known or type(value) not in {type(one) for one in known}:
        raise UnsupportedModelError(f"quantization_config: {name}", value, [shown(one) for one in known])


def with_scales(tensors: Mapping[str, TensorInfo], scheme: Fp8Scheme, where: str) -> dict[str, TensorInfo]:
    """The tensors as weights: those in fp8 know their scales, which are no entries of their own.

    Raises `ModelFileError`, beginning with `where`, for scales that are missing or of another shape than the weights mean.
    """
    scales: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        if info.format == STORED:
            scales[name] = _scale_of(info, tensors, scheme, where)
    taken = {scale.name for scale in scales.values()}
    return {
        name: replace(info, format=scheme.format, scale=scales[name]) if name in scales else info
        for name, info in tensors.items()
        if name not in taken and not _OF_ACTIVATIONS.fullmatch(name)
    }


def _scale_of(info: TensorInfo, tensors: Mapping[str, TensorInfo], scheme: Fp8Scheme, where: str) -> TensorInfo:
    tensor = f"{where}: tensor {shown(info.name)}, in fp8,"
    if len(info.shape) != 2:
        raise ModelFileError(f"{tensor} has the shape {info.shape}, a matrix is needed")
    names = [pattern.format(info.name) for pattern in _SCALE_NAMES]
    scale = next((tensors[name] for name in names if name in tensors), None)
    if scale is None:
        raise ModelFileError(f"{tensor} has no scales; {' or '.join(shown(name) for name in names)} is needed")
    num_rows, num_columns = info.shape
    wanted: set[tuple[int, ...]] = {(), (1,), (1, 1), (num_rows,), (num_rows, 1)}
    if scheme.by_block:
        wanted = {(-(-num_rows // FP8_BLOCK), -(-num_columns // FP8_BLOCK))}
    if scale.shape not in wanted:
        shapes = " or ".join(str(shape) for shape in sorted(wanted))
        raise ModelFileError(f"{tensor} of shape {info.shape} has scales of shape {scale.shape}, {shapes} is needed")
    if scale.format not in _SCALE_DTYPES:
        raise ModelFileError(f"{tensor} has scales in {scale.format}, one of {', '.join(_SCALE_DTYPES)} is needed")
    return scale
