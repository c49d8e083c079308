"""Types of what a product's kernel is given for `epilogue.finish`, for variants in `aot`."""

from __future__ import annotations

from typing import Any

_NORM = {"norm_ptr": "*fp32", "norm_stride": "i32:16", "norm_columns": "i32", "norm_size": "i32:16", "norm_eps": "fp32"}
_NO_RESIDUAL = {"stream_ptr": None, "gain_ptr": None, "scaled_ptr": None, "sums_ptr": None, "sums_stride": "i32:16"}
_NO_NORM = {"norm_ptr": None, "norm_stride": "i32:16", "norm_columns": "i32", "norm_size": 1, "norm_eps": "fp32"}
_OUT = {"out_ptr": "*bf16", "out_stride": "i32:16"}

# A norm to be finished and a bias; the same with a gate; and a step along the residual stream.
PLAIN: dict[str, Any] = {**_OUT, **_NORM, **_NO_RESIDUAL, "bias_ptr": "*fp32", "GATE": ""}
GATED: dict[str, Any] = {**_OUT, **_NORM, **_NO_RESIDUAL, "bias_ptr": None, "GATE": "silu"}
RESIDUAL: dict[str, Any] = {
    **_OUT,
    **_NO_NORM,
    "bias_ptr": None,
    "stream_ptr": "*bf16",
    "gain_ptr": "*fp32",
    "scaled_ptr": "*bf16",
    "sums_ptr": "*fp32",
    "sums_stride": "i32:16",
    "GATE": "",
}
