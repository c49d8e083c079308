"""The tiny LLaMA with its matrices in fp8, as three tools write that, and the same weights dequantized by torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.tiny_model import write_tiny_model

BLOCK = 128
_DYNAMIC = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}


def compressed(strategy: str) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "dynamic": False, "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": _DYNAMIC, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "sparsity_config": {},
        "transform_config": {},
    }


# What config.json says, and how a matrix's scales are cut and stored: (quantization_config, kind, suffix, dtype).
CHECKPOINTS: dict[str, tuple[dict[str, Any], str, str, torch.dtype]] = {
    "by-channel": (compressed("channel"), "channel", "_scale", torch.bfloat16),
    "by-tensor": (compressed("tensor"), "tensor", "_scale", torch.float32),
    "autofp8": ({"quant_method": "fp8", "activation_scheme": "static"}, "tensor", "_scale", torch.float32),
    "by-block": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK], "activation_scheme": "dynamic"},
        "block",
        "_scale_inv",
        torch.float32,
    ),
}


def write_fp8_models(directory: Path, name: str, dense: torch.dtype) -> tuple[str, str]:
    """Two directories: the model in fp8 as one of `CHECKPOINTS`, and its weights dequantized to `dense`."""
    described, kind, suffix, scale_dtype = CHECKPOINTS[name]
    narrow, wide = write_tiny_model(directory / "fp8"), write_tiny_model(directory / "dense")
    weights = load_file(narrow / "model.safetensors")
    stored, dequantized = dict(weights), dict(weights)
    for key, weight in weights.items():
        if not key.endswith("_proj.weight"):
            continue
        codes, scale = quantized(weight, kind, scale_dtype)
        stored[key], stored[key + suffix] = codes, scale
        stored[key.replace("weight", "input_scale")] = torch.tensor([0.5])
        dequantized[key] = (codes.float() * spread(scale.float(), weight.shape)).to(dense)
    save_file(stored, narrow / "model.safetensors")
    save_file(dequantized, wide / "model.safetensors")
    config = json.loads((narrow / "config.json").read_text())
    (narrow / "config.json").write_text(json.dumps({**config, "quantization_config": described}))
    return str(narrow), str(wide)


def quantized(weight: torch.Tensor, kind: str, scale_dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes in E4M3, and scales: of a tensor [1], of each output [out, 1], of 128 × 128 blocks [⌈out / 128⌉, ⌈in / 128⌉]."""
    if kind == "tensor":
        scale = weight.abs().max().reshape(1) / 448
    elif kind == "channel":
        scale = weight.abs().amax(1, keepdim=True) / 448
    else:
        rows, columns = (-(-size // BLOCK) for size in weight.shape)
        padded = torch.zeros(rows * BLOCK, columns * BLOCK)
        padded[: weight.shape[0], : weight.shape[1]] = weight
        scale = padded.view(rows, BLOCK, columns, BLOCK).abs().amax((1, 3)) / 448
    scale = scale.to(scale_dtype)
    return (weight / spread(scale.float(), weight.shape)).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def spread(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Scales for each element, or such that they broadcast."""
    if (scale.dim() == 2 and scale.shape[1:] != (1,)) or scale.shape == (1, 1):
        wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return wide[: shape[0], : shape[1]]
    return scale
