"""Models whose files are in fp8: the same tokens as their weights dequantized by torch, and planned by what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagoda import LLM, SamplingParams
from pagoda.errors import ModelFileError
from pagoda.models.describe import describe_model
from pagoda.planning.gpu_holding import gpu_holding
from tests.fp8_model import CHECKPOINTS, write_fp8_models
from tests.tiny_model import HIDDEN, INTERMEDIATE, LAYERS

GREEDY = SamplingParams(temperature=0, max_tokens=12, logprobs=2, ignore_eos=True)
SMALL: dict[str, Any] = {"num_kv_blocks": 16, "threads": 1}


def outcome(model: str, **config: Any) -> object:
    with LLM(model, **SMALL, **config) as llm:
        output = llm.generate("Hello, how are you?", GREEDY)[0].outputs[0]
        return output.token_ids, output.logprobs


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_reference_computes_with_codes_times_scales(tmp_path: Path, name: str) -> None:
    narrow, dense = write_fp8_models(tmp_path, name, torch.float32)
    assert outcome(narrow, device="reference") == outcome(dense, device="reference")


@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize("name", ["by-channel", "by-block"])
def test_the_cpu_holds_them_in_bf16_or_quantizes_them_from_there(tmp_path: Path, name: str, quantization: str) -> None:
    narrow, dense = write_fp8_models(tmp_path, name, torch.bfloat16)
    assert outcome(narrow, device="cpu", quantization=quantization) == outcome(
        dense, device="cpu", quantization=quantization
    )


def test_the_cpu_holds_what_was_planned(tmp_path: Path) -> None:
    narrow, _ = write_fp8_models(tmp_path, "by-channel", torch.bfloat16)
    with LLM(narrow, device="cpu", **SMALL) as llm:
        assert llm.held.weight_bytes == llm.plan.weight_bytes


def test_a_gpu_is_planned_for_codes_and_scales(tmp_path: Path) -> None:
    codes = LAYERS * (HIDDEN * (32 + 16 + 16 + 32) + 3 * HIDDEN * INTERMEDIATE)
    outputs = LAYERS * (32 + 16 + 16 + 32 + 2 * INTERMEDIATE + HIDDEN)
    for name, scales in (("by-channel", outputs), ("by-tensor", outputs), ("by-block", LAYERS * 7)):
        narrow, _ = write_fp8_models(tmp_path / name, name, torch.float32)
        described = describe_model(narrow)
        held = gpu_holding(described.spec, described.stored, None, None)
        dense = sum(
            weight.num_elements * 4 for weight in described.spec.weights if weight.part in ("embedding", "norm")
        )
        assert held.weight_bytes == codes + 4 * scales + dense
        assert described.runnable


def test_scales_count_in_the_fingerprint(tmp_path: Path) -> None:
    narrow, _ = write_fp8_models(tmp_path, "by-channel", torch.float32)
    with LLM(narrow, **SMALL) as llm:
        before = llm.fingerprint
    path = Path(narrow) / "model.safetensors"
    tensors = load_file(path)
    next(value for name, value in tensors.items() if name.endswith("weight_scale"))[0] *= 2
    save_file(tensors, path)
    with LLM(narrow, **SMALL) as llm:
        assert llm.fingerprint != before


def test_a_scale_without_its_weight_is_unknown(tmp_path: Path) -> None:
    narrow, _ = write_fp8_models(tmp_path, "by-channel", torch.float32)
    path = Path(narrow) / "model.safetensors"
    save_file({**load_file(path), "model.layers.0.mlp.other.weight_scale": torch.ones(1)}, path)
    with pytest.raises(ModelFileError, match=r"unknown to the family llama .*other\.weight_scale"):
        LLM(narrow, **SMALL)
