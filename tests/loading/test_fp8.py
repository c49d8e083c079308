"""fp8 checkpoints: which configurations are followed, and tensors that lie about their scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.loading.fp8 import Fp8Scheme, check_quantization, fp8_scheme
from pagoda.loading.huggingface import HuggingFaceCheckpoint
from pagoda.planning.formats import weight_format
from tests.fp8_model import CHECKPOINTS, compressed
from tests.loading.files import TINY_CONFIG, huggingface_directory

CODES = torch.zeros(130, 257).to(torch.float8_e4m3fn)
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def opened(
    directory: Path, described: dict[str, Any] | None, tensors: dict[str, torch.Tensor]
) -> HuggingFaceCheckpoint:
    config = TINY_CONFIG if described is None else {**TINY_CONFIG, "quantization_config": described}
    return HuggingFaceCheckpoint(huggingface_directory(directory, config, save(tensors)), "tiny")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_known_ways_to_write_fp8_down(name: str) -> None:
    described, kind, _, _ = CHECKPOINTS[name]
    assert check_quantization({"quantization_config": described}) == Fp8Scheme(by_block=kind == "block")


def test_nothing_said_is_nothing_to_do() -> None:
    assert check_quantization({}) is check_quantization({"quantization_config": None}) is None


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, "quantization method 'gptq' is not supported; known: none, fp8"),
        ({"quant_method": "awq"}, "quantization method 'awq'"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantization method 'bitsandbytes'"),
        ("fp8", "quantization method 'fp8'"),
        ([1], r"quantization method \[1\]"),
        (
            {**BLOCKS, "weight_block_size": [64, 128]},
            r"weight_block_size \[64, 128\] is not supported; known: \[128, 128\]",
        ),
        ({**BLOCKS, "fmt": "e5m2"}, "fmt 'e5m2' is not supported"),
        ({**compressed("channel"), "format": "pack-quantized"}, "format 'pack-quantized' is not supported"),
        ({**compressed("group")}, "strategy 'group' is not supported; known: 'tensor', 'channel', 'block'"),
        ({**compressed("channel"), "config_groups": {"a": 5}}, "config_groups 5"),
        ({**compressed("channel"), "config_groups": None}, "config_groups None"),
        ({**compressed("channel"), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ({**compressed("channel"), "transform_config": {"config_groups": {"u": {}}}}, "transform_config"),
        (
            {**compressed("tensor"), "config_groups": {"a": {"weights": {"num_bits": 4, "type": "float"}}}},
            "num_bits 4 is not supported",
        ),
        (
            {**compressed("tensor"), "config_groups": {"a": {"weights": {"num_bits": 8, "type": "int"}}}},
            "type 'int' is not supported",
        ),
    ],
)
def test_other_ways_are_refused_in_a_sentence(described: object, words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        check_quantization({"quantization_config": described})
    assert fp8_scheme({"quantization_config": described}) is None


def test_scales_belong_to_their_weights_and_those_of_activations_are_left_out(tmp_path: Path) -> None:
    scale = torch.rand(130, 1)
    tensors = {"a.weight": CODES, "a.weight_scale": scale, "b.weight": torch.ones(3)}
    tensors |= {f"a.{kind}_scale": torch.ones(1) for kind in ("input", "output", "activation", "q", "k", "v", "kv")}
    checkpoint = opened(tmp_path, compressed("channel"), tensors)
    assert {name: info.format for name, info in checkpoint.tensors.items()} == {"a.weight": "fp8", "b.weight": "F32"}
    read = checkpoint.read("a.weight")
    assert read.scale is not None
    assert read.scale.data.tobytes() == scale.numpy().tobytes()
    assert checkpoint.read("b.weight").scale is None


def test_without_such_a_configuration_nothing_is_taken_for_scales(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, None, {"a.weight": CODES, "a.weight_scale": torch.ones(130)})
    assert {name: info.format for name, info in checkpoint.tensors.items()} == {
        "a.weight": "F8_E4M3",
        "a.weight_scale": "F32",
    }


def test_codes_without_such_a_configuration_are_refused_with_what_they_lack() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'F8_E4M3' is not .*, fp8 where quantization_config says how$"):
        weight_format("F8_E4M3")


@pytest.mark.parametrize(
    ("described", "tensors", "words"),
    [
        (BLOCKS, {"a.weight": CODES}, "has no scales; 'a.weight_scale_inv' or 'a.weight_scale' is needed"),
        (BLOCKS, {"a.weight": CODES, "a.weight_scale_inv": torch.ones(2, 2)}, r"scales of shape \(2, 2\), \(2, 3\) is"),
        (
            BLOCKS,
            {"a.weight": CODES, "a.weight_scale_inv": torch.ones(6)},
            r"scales of shape \(6,\), \(2, 3\) is needed",
        ),
        (
            compressed("channel"),
            {"a.weight": CODES, "a.weight_scale": torch.ones(2, 3)},
            r"\(130,\) or \(130, 1\) is needed",
        ),
        (
            compressed("channel"),
            {"a.weight": CODES, "a.weight_scale": torch.ones(1, 130)},
            r"scales of shape \(1, 130\)",
        ),
        (
            compressed("tensor"),
            {"a.weight": CODES, "a.weight_scale": torch.ones(1, dtype=torch.int32)},
            "scales in I32, one of",
        ),
        (
            compressed("tensor"),
            {"a.weight": CODES, "a.weight_scale": CODES[:1, :1].clone()},
            "scales in F8_E4M3, one of",
        ),
        (
            compressed("tensor"),
            {"a.weight": CODES[0], "a.weight_scale": torch.ones(1)},
            r"shape \(257,\), a matrix is needed",
        ),
    ],
)
def test_scales_that_cannot_be_are_refused_before_anything_is_read(
    tmp_path: Path, described: dict[str, Any], tensors: dict[str, torch.Tensor], words: str
) -> None:
    with pytest.raises(ModelFileError, match=f"tensor 'a.weight.*{words}"):
        opened(tmp_path, described, {name: value.contiguous() for name, value in tensors.items()})
