"""Stored bytes to float32, for every format of `planning.formats`: those of GGUF exactly as ggml's reference does it
(`ggml-quants.c`), fp8 as the product of code and scale in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pagoda.errors import ModelFileError, shown
from pagoda.loading.checkpoint import StoredTensor
from pagoda.planning.formats import FP8_FORMATS, weight_format
from pagoda.quantization import blocks_of_32, dense, fp8, k_quants

# Elements done at a time, so that temporaries stay at a few MiB whatever the tensor's size.
SLICE_ELEMENTS = 1 << 18

_DECODERS: dict[str, Callable[[npt.NDArray[np.uint8], npt.NDArray[np.float32]], None]] = {
    "F32": dense.f32,
    "F16": dense.f16,
    "BF16": dense.bf16,
    "Q4_0": blocks_of_32.q4_0,
    "Q4_1": blocks_of_32.q4_1,
    "Q5_0": blocks_of_32.q5_0,
    "Q5_1": blocks_of_32.q5_1,
    "Q8_0": blocks_of_32.q8_0,
    "Q4_K": k_quants.q4_k,
    "Q5_K": k_quants.q5_k,
    "Q6_K": k_quants.q6_k,
    "fp8": fp8.e4m3,
    "fp8_block": fp8.e4m3,
}


def dequantize(stored: StoredTensor) -> npt.NDArray[np.float32]:
    """The tensor's values: float32 of `stored.info.shape`, an array of its own (never a view of the file).

    Raises `UnsupportedModelError` for a format that is not known, `ModelFileError` if bytes, shape and scales do not agree.
    """
    info = stored.info
    kind = weight_format(info.format)
    last = info.shape[-1] if info.shape else 1
    result = np.empty(info.shape, np.float32)
    if last % kind.block_elements or stored.data.size * kind.block_elements != result.size * kind.block_bytes:
        raise ModelFileError(
            f"tensor {shown(info.name)} of shape {info.shape} in {kind.name} does not have {stored.data.size:,} bytes"
        )
    blocks = stored.data.reshape(-1, kind.block_bytes)
    values = result.reshape(-1, kind.block_elements)
    decode, step = _DECODERS[info.format], max(1, SLICE_ELEMENTS // kind.block_elements)
    # A damaged file may hold infinities and NaNs; what they give is the model's to refuse, not a warning's to print.
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            decode(blocks[start : start + step], values[start : start + step])
        if info.format in FP8_FORMATS:
            fp8.apply_scales(stored, result)
    return result
