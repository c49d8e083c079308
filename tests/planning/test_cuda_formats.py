"""Bytes of quantized matrices on the GPU, and which matrices are quantized."""

from __future__ import annotations

import pytest

from pagoda.planning.cuda_formats import CUDA_FORMATS, packed_bytes, packed_format
from pagoda.planning.formats import FORMATS, tensor_bytes
from pagoda.planning.gpu_holding import SCALED

SHAPES = ((11008, 4096), (4096, 11008), (3, 256), (512, 896))


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_engines_serve_takes_what_the_generic_formula_says(name: str, shape: tuple[int, int]) -> None:
    assert packed_bytes(name, shape) == SCALED[name].tensor_bytes(shape)


@pytest.mark.parametrize("name", [name for name in CUDA_FORMATS if name in FORMATS])
def test_formats_of_files_are_not_widened(name: str) -> None:
    # A 6-bit scale of a K-quant takes a byte: 16 of a block of 256 inputs, which were 12 bytes, are 16.
    more = 4 if name in ("Q4_K", "Q5_K") else 0
    assert packed_bytes(name, (6, 512)) == tensor_bytes((6, 512), name) + 12 * more


def test_blocks_have_a_scale_for_128_by_128_numbers_begun() -> None:
    assert packed_bytes("fp8_block", (200, 272)) == 200 * 272 + 2 * 3 * 4


def test_a_last_group_may_be_incomplete() -> None:
    assert packed_bytes("int4", (2, 576)) == 2 * (288 + 5 * 2)


def test_experts_are_as_many_matrices() -> None:
    assert packed_bytes("fp8_block", (4, 130, 64)) == 4 * packed_bytes("fp8_block", (130, 64))


@pytest.mark.parametrize(
    ("stored", "in_features", "quantization", "held"),
    [
        ("BF16", 4096, None, None),
        ("F32", 4096, "int4", "int4"),
        ("BF16", 576, "int4", "int4"),
        ("F16", 88, "int4", None),  # rows that are not whole units
        ("F16", 88, "fp8", "fp8"),
        ("BF16", 100, "int8", None),
        ("Q4_K", 512, "int8", "Q4_K"),  # what is stored quantized stays what it is
        ("Q5_0", 64, None, "Q5_0"),
        ("fp8_block", 100, None, None),
    ],
)
def test_which_matrices_are_quantized(
    stored: str, in_features: int, quantization: str | None, held: str | None
) -> None:
    found = packed_format(stored, in_features, quantization)
    assert (None if found is None else found.name) == held
