"""Planes and epilogues of the kernels for quantized matrices, as types."""

from __future__ import annotations

from typing import Any

import torch

from pagoda.planning.cuda_formats import CUDA_FORMATS

_TYPES = {"uint8": "*u8", "int8": "*i8", "int16": "*i16", "int32": "*i32", "float16": "*fp16", "float32": "*fp32"}
META = torch.device("meta")
_NAMES = ("codes", "high", "scales", "mins", "super_scales", "super_mins")


def planes(name: str) -> dict[str, Any]:
    types = {plane.name: _TYPES[plane.number] for plane in CUDA_FORMATS[name].planes}
    return {**{f"{each}_ptr": types.get(each) for each in _NAMES}, "exponent": "i32:16", "FORMAT": name}


def epilogue(gate: str = "", *, is_residual: bool = False, has_norm: bool = False) -> dict[str, Any]:
    return {
        "out_ptr": "*bf16",
        "out_stride": "i32:16",
        "bias_ptr": None,
        "stream_ptr": "*bf16" if is_residual else None,
        "gain_ptr": "*fp32" if is_residual else None,
        "scaled_ptr": "*bf16" if is_residual else None,
        "sums_ptr": "*fp32" if is_residual else None,
        "sums_stride": "i32" if is_residual else 0,
        "norm_ptr": "*fp32" if has_norm else None,
        "norm_stride": "i32" if has_norm else 0,
        "norm_columns": "i32" if has_norm else 0,
        "norm_size": "i32" if has_norm else 1,
        "norm_eps": "fp32",
        "GATE": gate,
    }
