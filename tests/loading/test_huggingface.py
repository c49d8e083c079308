"""A Hugging Face directory: which files it consists of, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pagoda.errors import ModelFileError
from pagoda.loading.huggingface import HuggingFaceCheckpoint
from pagoda.quantization import dequantize
from tests.loading.files import TINY_CONFIG, entry, huggingface_directory, safetensors_bytes


def sharded(directory: Path, weight_map: Any, shards: dict[str, bytes]) -> Path:
    huggingface_directory(directory)
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for name, content in shards.items():
        (directory / name).write_bytes(content)
    return directory


def one(name: str, value: bytes = bytes(4)) -> bytes:
    return safetensors_bytes({name: entry((1,), 0, 4)}, value)


@pytest.mark.parametrize("max_shard_size", ["1GB", "20KB"])
def test_what_transformers_saves(tmp_path: Path, max_shard_size: str) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=96
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path, max_shard_size=max_shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() == (max_shard_size == "20KB")
    checkpoint = HuggingFaceCheckpoint(tmp_path, "tiny")
    assert checkpoint.kind == "huggingface"
    assert checkpoint.directory == tmp_path
    assert checkpoint.config["hidden_size"] == 32
    assert checkpoint.config["rope_theta"] == 10000.0
    assert checkpoint.config["rope_scaling"] is None
    assert checkpoint.generation_config["eos_token_id"] == [2]
    weights = model.state_dict()
    assert checkpoint.tensors.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(torch.from_numpy(dequantize(checkpoint.read(name))), weight)
    checkpoint.close()
    with pytest.raises(KeyError):
        checkpoint.read("lm_head.weight")


def test_ids_come_from_the_config_where_generation_config_lacks_them(tmp_path: Path) -> None:
    assert HuggingFaceCheckpoint(huggingface_directory(tmp_path), "m").generation_config == {"eos_token_id": [2]}


def test_generation_config_goes_before_the_config(tmp_path: Path) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6], "top_k": 3}))
    assert HuggingFaceCheckpoint(tmp_path, "m").generation_config == {"eos_token_id": [5, 6], "top_k": 3}


@pytest.mark.parametrize("eos", ["2", -1, [2, None], True])
def test_a_special_id_that_is_none(tmp_path: Path, eos: object) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    with pytest.raises(ModelFileError, match=r"generation_config\.json: eos_token_id: got"):
        HuggingFaceCheckpoint(tmp_path, "m")


@pytest.mark.parametrize("eos", ["x", -1])
def test_a_special_id_that_is_none_in_the_config(tmp_path: Path, eos: object) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**TINY_CONFIG, "eos_token_id": eos}))
    with pytest.raises(ModelFileError, match=r"/config\.json: eos_token_id: got"):
        HuggingFaceCheckpoint(tmp_path, "m")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_folder_or_a_pipe_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    for number, make in enumerate((Path.mkdir, os.mkfifo)):
        directory = huggingface_directory(tmp_path / str(number))
        (directory / name).unlink(missing_ok=True)
        make(directory / name)
        with pytest.raises(ModelFileError, match=rf"/{name}: is not an ordinary file"):
            HuggingFaceCheckpoint(directory, "m")


def test_the_single_file_goes_before_the_index(tmp_path: Path) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert list(HuggingFaceCheckpoint(tmp_path, "m").tensors) == ["a", "b"]


def test_files_of_other_names_without_an_index(tmp_path: Path) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    (tmp_path / "adapter_model.safetensors").write_bytes(one("adapter"))
    (tmp_path / "consolidated.safetensors").write_bytes(one("copy"))
    assert list(HuggingFaceCheckpoint(tmp_path, "m").tensors) == ["a", "b"]


def test_a_tensor_is_taken_from_where_the_index_says(tmp_path: Path) -> None:
    both = safetensors_bytes({"x": entry((1,), 0, 4), "y": entry((1,), 4, 8)}, bytes(8))
    shards = {"1.safetensors": both, "2.safetensors": one("y", b"\0\0\x80\x3f")}
    directory = sharded(tmp_path, {"x": "1.safetensors", "y": "2.safetensors"}, shards)
    assert dequantize(HuggingFaceCheckpoint(directory, "m").read("y")).tolist() == [1.0]


@pytest.mark.parametrize(
    ("weight_map", "sentence"),
    [
        ({"x": "../x.safetensors"}, "which is not the plain name of a .safetensors file"),
        ({"x": "/etc/x.safetensors"}, "which is not the plain name"),
        ({"x": "sub/x.safetensors"}, "which is not the plain name"),
        ({"x": "..\\x.safetensors"}, "which is not the plain name"),
        ({"x": "C:x.safetensors"}, "which is not the plain name"),
        ({"x": "x\0.safetensors"}, "which is not the plain name"),
        ({"x": "x.bin"}, "which is not the plain name"),
        ({"x": 3}, "'x' is placed in 3"),
        ({"x": "2.safetensors"}, "the file '2.safetensors' that it names is missing"),
        ({"x": "1.safetensors", "z": "1.safetensors"}, "lacks the tensor 'z'"),
        ({}, "weight_map is {}, an object"),
        ([1], r"weight_map is \[1\], an object"),
        (None, "weight_map is None, an object"),
    ],
)
def test_an_index_that_lies(tmp_path: Path, weight_map: Any, sentence: str) -> None:
    # Bait outside the directory: it must not be read even though it is there.
    (tmp_path / "x.safetensors").write_bytes(one("x"))
    directory = sharded(tmp_path / "m", weight_map, {"1.safetensors": one("x"), "x.bin": one("x")})
    with pytest.raises(ModelFileError, match=sentence):
        HuggingFaceCheckpoint(directory, "m")


def test_a_tensor_in_two_files_without_an_index(tmp_path: Path) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "one.safetensors")
    (tmp_path / "two.safetensors").write_bytes(one("a"))
    with pytest.raises(ModelFileError, match=r"'a' is in one\.safetensors as well"):
        HuggingFaceCheckpoint(tmp_path, "m")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_a_pickle_is_refused_by_name(tmp_path: Path, name: str) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(ModelFileError, match=f"has its weights in {name}, a pickle, .* never loaded"):
        HuggingFaceCheckpoint(tmp_path, "m")


def test_no_weights_and_no_config(tmp_path: Path) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match="has no weights"):
        HuggingFaceCheckpoint(tmp_path, "m")
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no config\.json"):
        HuggingFaceCheckpoint(tmp_path, "m")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not valid JSON"),
        ("[]", "holds a JSON list"),
        ("{" * 100_000, "not valid JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("{}", "model_type is None, a string is needed"),
        ('{"model_type": "llama", "rope_theta": "x"}', "rope_theta: got 'x', must be a finite number"),
        ('{"model_type": "llama", "rope_theta": NaN}', "rope_theta: got nan"),
        ('{"model_type": "llama", "rope_scaling": 3}', "rope_scaling: got 3, must be an object or null"),
        ('{"model_type": "llama", "rope_scaling": {"type": 3}}', "rope_scaling.rope_type: got 3"),
        ('{"model_type": "llama", "model_type": "qwen2"}', "the key 'model_type' comes twice"),
    ],
)
def test_a_config_that_is_wrong(tmp_path: Path, text: str, sentence: str) -> None:
    huggingface_directory(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFileError, match=sentence) as caught:
        HuggingFaceCheckpoint(tmp_path, "m")
    assert "config.json" in str(caught.value)


def test_an_enormous_config_is_not_read(tmp_path: Path) -> None:
    huggingface_directory(tmp_path)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelFileError, match="1,099,511,627,776 bytes of JSON, at most"):
        HuggingFaceCheckpoint(tmp_path, "m")


def test_names_are_the_config_s(tmp_path: Path) -> None:
    assert HuggingFaceCheckpoint(huggingface_directory(tmp_path), "n").name == "n"
    assert TINY_CONFIG["model_type"] == "llama"
