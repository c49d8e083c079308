"""GGUF's type numbers (ggml's `ggml.h` and `gguf.h`): metadata values and tensor formats."""

from __future__ import annotations

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.planning.formats import FORMATS, WeightFormat

STRING, ARRAY, BOOL = 8, 9, 7

# Value type → the letter that `struct` has for it; a bool is a byte that is 0 or 1.
NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "B", 10: "Q", 11: "q", 12: "d"}

_TENSOR_TYPE_NAMES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}

# Not weight formats, but files hold tables of them: they are listed in the inventory, and cannot be dequantized.
_TABLE_FORMATS = {
    name: WeightFormat(name, 1, size) for name, size in (("I8", 1), ("I16", 2), ("I32", 4), ("I64", 8), ("F64", 8))
}


def tensor_format(number: int, where: str) -> WeightFormat:
    """The format that a tensor's type number means. Raises `ModelFileError` or `UnsupportedModelError`."""
    name = _TENSOR_TYPE_NAMES.get(number)
    if name is None:
        raise ModelFileError(f"{where} has the unknown type number {number}")
    if name in _TABLE_FORMATS:
        return _TABLE_FORMATS[name]
    if name not in FORMATS:
        raise UnsupportedModelError(f"{where}: weight format", name, FORMATS)
    return FORMATS[name]
