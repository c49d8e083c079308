"""The same model gives the same logits, whatever kind of file it comes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from pagoda.loading.resolve import open_checkpoint
from tests.parity.configs import LLAMA3, TINY, tiny_model
from tests.parity.gguf_files import interleaved, write_gemma3, write_gpt2, write_llama
from tests.parity.harness import Steps, load
from tests.parity.test_families import check_logits

PROMPT = np.random.default_rng(11).integers(3, 256, 40).tolist()


def reference(model: Any) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.tensor([PROMPT])).logits[0].numpy()


def logits(path: Path) -> np.ndarray:
    return Steps(load(open_checkpoint(str(path))), [PROMPT], len(PROMPT)).prefill(chunk=16)[0]


def test_sharded_safetensors(tmp_path: Path) -> None:
    model = tiny_model("llama-gqa")
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2

    check_logits(logits(tmp_path), reference(model))


def test_gpt2_files_without_the_prefix_and_with_masks_and_a_second_head(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 512, 512)
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, file, metadata={"format": "pt"})

    check_logits(logits(tmp_path), reference(model))


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_gemma3_inside_a_multimodal_model(tmp_path: Path, prefix: str) -> None:
    model = tiny_model("gemma3")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {prefix + name.removeprefix("model."): tensor for name, tensor in load_file(file).items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(8)
    save_file(tensors, file, metadata={"format": "pt"})
    text = json.loads((tmp_path / "config.json").read_text())
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(outer))

    check_logits(logits(tmp_path), reference(model))


def test_bfloat16_safetensors_are_taken_exactly(tmp_path: Path) -> None:
    model = tiny_model("llama-gqa")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
    save_file(halved, file, metadata={"format": "pt"})
    model.load_state_dict({name: tensor.float() for name, tensor in halved.items()})

    check_logits(logits(tmp_path), reference(model))


def test_gguf_llama_has_q_and_k_in_another_order(tmp_path: Path) -> None:
    model = tiny_model("llama-gqa")
    write_llama(tmp_path / "model.gguf", model)

    check_logits(logits(tmp_path / "model.gguf"), reference(model))


def test_gguf_without_an_output_matrix_has_a_tied_head(tmp_path: Path) -> None:
    model = tiny_model("llama-tied")
    write_llama(tmp_path / "model.gguf", model)

    check_logits(logits(tmp_path / "model.gguf"), reference(model))


def test_gguf_quantized_rows_move_whole(tmp_path: Path) -> None:
    model = tiny_model("llama-gqa")
    write_llama(tmp_path / "model.gguf", model, gguf.GGMLQuantizationType.Q8_0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                kind = gguf.GGMLQuantizationType.Q8_0
                parameter.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(parameter.numpy(), kind), kind)))

    check_logits(logits(tmp_path / "model.gguf"), reference(model))


def test_gguf_gpt2(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    write_gpt2(tmp_path / "model.gguf", model)

    check_logits(logits(tmp_path / "model.gguf"), reference(model))


def test_gguf_gemma3_has_one_added_to_its_gains(tmp_path: Path) -> None:
    torch.manual_seed(5)
    # What a GGUF file does not say is fixed: every sixth layer is global, the local RoPE base is 10,000.
    config = transformers.Gemma3TextConfig(
        **{**TINY, "num_hidden_layers": 6}, head_dim=32, query_pre_attn_scalar=32, sliding_window=20
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    write_gemma3(tmp_path / "model.gguf", model)

    check_logits(logits(tmp_path / "model.gguf"), reference(model))


def test_interleaving_is_its_own_kind_of_order() -> None:
    assert interleaved(np.arange(8), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_gguf_llama3_divisors_mean_the_scaling(tmp_path: Path) -> None:
    model = tiny_model("llama3-rope")
    base = np.float32(LLAMA3["rope_theta"]) ** -(np.arange(0, 16, 2, dtype=np.float32) / 16)
    divisors = base / model.model.rotary_emb.inv_freq.numpy()
    write_llama(tmp_path / "model.gguf", model, rope_freqs=divisors)

    check_logits(logits(tmp_path / "model.gguf"), reference(model))
