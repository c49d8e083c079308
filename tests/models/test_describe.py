"""What MODEL means for planning: a name, a path, a configuration, and what is said of anything else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pagoda.errors import InvalidValueError, ModelFileError, PagodaError, UnsupportedModelError
from pagoda.models.describe import describe_model
from pagoda.models.named_shapes import NAMED_SHAPES
from pagoda.planning.holding import weight_bytes
from tests.models.fakes import LLAMA
from tests.tiny_model import write_tiny_model

MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def config_file(path: Path, config: Mapping[str, Any]) -> str:
    path.write_text(json.dumps(config))
    return str(path)


def refusal(model: str, revision: str | None = None) -> str:
    with pytest.raises(PagodaError) as caught:
        describe_model(model, revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", list(NAMED_SHAPES))
def test_a_named_shape(name: str) -> None:
    described = describe_model(name)
    assert described.name == name
    assert described.served_as == NAMED_SHAPES[name].repository
    assert described.context_length == NAMED_SHAPES[name].config["max_position_embeddings"]
    assert weight_bytes(described.spec, described.stored) > described.spec.num_parameters // 2
    assert described.runnable == (name not in ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"))


def test_repositories_have_the_publishers_spelling() -> None:
    names = {shape.repository for shape in NAMED_SHAPES.values()}
    assert {"openai-community/gpt2-xl", "meta-llama/Meta-Llama-3-70B", "meta-llama/Llama-3.1-8B"} <= names
    assert {"Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-30B-A3B", "huggyllama/llama-13b"} <= names


def test_a_directory_tells_each_weights_format(tmp_path: Path) -> None:
    described = describe_model(str(write_tiny_model(tmp_path / "m")))
    assert described.runnable
    assert described.served_as == described.name
    assert not isinstance(described.stored, str)
    assert weight_bytes(described.spec, described.stored) == described.file_bytes == 4 * described.spec.num_parameters


def test_a_configuration_alone_is_enough(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    directory.mkdir()
    path = config_file(directory / "config.json", {**LLAMA, "torch_dtype": "bfloat16"})
    for model in (path, str(directory)):
        described = describe_model(model)
        assert described.spec.num_layers == 2
        assert (described.stored, described.file_bytes, described.served_as) == ("BF16", None, None)
    (directory / "pytorch_model.bin").write_bytes(b"a pickle")
    assert describe_model(str(directory)).stored == "BF16"
    assert describe_model(config_file(tmp_path / "plain.json", LLAMA)).stored == "F32"


def test_a_planned_architecture_is_not_runnable(tmp_path: Path) -> None:
    described = describe_model(config_file(tmp_path / "config.json", {**MIXTRAL, "dtype": "float16"}))
    assert not described.runnable
    assert described.spec.active_parameters < described.spec.num_parameters


@pytest.mark.parametrize(
    ("quantization", "low", "high"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1.0, 1.7),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 1.0, 1.7),
        ({"quant_method": "awq", "bits": 4}, 0.5, 1.3),
    ],
)
def test_quantized_models_can_be_planned(tmp_path: Path, quantization: dict[str, Any], low: float, high: float) -> None:
    config = {**LLAMA, "hidden_size": 128, "intermediate_size": 384, "quantization_config": quantization}
    described = describe_model(config_file(tmp_path / "config.json", config))
    assert described.runnable == (quantization["quant_method"] == "fp8")
    assert low < weight_bytes(described.spec, described.stored) / described.spec.num_parameters < high


@pytest.mark.parametrize("quantization", ["bits", {"quant_method": "gptq", "bits": 3}, {"bits": [4]}, [1], 5])
def test_quantization_of_an_unknown_kind_is_refused(tmp_path: Path, quantization: object) -> None:
    message = refusal(config_file(tmp_path / "config.json", {**LLAMA, "quantization_config": quantization}))
    assert "quantization method" in message
    assert "known: fp8" in message


def test_deepseek_v3_is_stored_in_fp8() -> None:
    described = describe_model("deepseek-v3")
    size = weight_bytes(described.spec, described.stored)
    assert 671e9 < size < 675e9


def test_the_embedded_model_is_read_by_its_header_alone() -> None:
    described = describe_model("smollm2")
    assert described.spec.num_parameters == 134_515_008
    assert described.context_length == 8192
    assert not isinstance(described.stored, str)
    assert described.file_bytes == weight_bytes(described.spec, described.stored) == 96_576_768


def test_what_is_on_disk_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny_model(tmp_path / "llama-7b")
    assert describe_model("llama-7b").spec.num_layers == 2


def test_an_unknown_name_is_told_what_it_may_have_meant() -> None:
    message = refusal("lama-7b")
    assert "did you mean llama-7b" in message
    assert "MODEL is a local directory, a config.json, a .gguf file, a hub id" in message
    assert "deepseek-v3" in message
    assert "did you mean" not in refusal("xyz")
    assert "there is no file or directory of that name" in refusal("./m.gguf")


def test_only_hub_models_have_revisions(tmp_path: Path) -> None:
    for model in ("llama-7b", "smollm2", config_file(tmp_path / "c.json", LLAMA)):
        with pytest.raises(InvalidValueError, match="only hub models have revisions"):
            describe_model(model, "main")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": -1}, "hidden_size: got -1, must be an integer from 1"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: got 1000000000"),
        ({"num_local_experts": 10**9}, "num_local_experts: got 1000000000, must be an integer from 1 to 4,096"),
        ({"num_local_experts": None}, "num_local_experts is missing"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok: got 5, must be an integer from 1 to 4"),
        ({"intermediate_size": "48"}, "intermediate_size: got '48'"),
        ({"vocab_size": 1e30}, "vocab_size: got 1e+30"),
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"dtype": "int3"}, "dtype 'int3' is not supported; known: float32, bfloat16, float16"),
        ({"dtype": ["bfloat16"]}, "dtype ['bfloat16'] is not supported"),
        ({"model_type": ["mixtral"]}, "model_type is ['mixtral'], a string is needed"),
        ({"model_type": "mamba"}, "architecture 'mamba' is not supported; known: llama, mistral"),
        ({"rope_theta": "many"}, "rope_theta"),
    ],
)
def test_a_broken_configuration_is_refused_in_one_sentence(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    assert words in refusal(config_file(tmp_path / "config.json", {**MIXTRAL, **change}))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"model_type": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_configuration_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        describe_model(str(path))
    assert str(caught.value).startswith(str(path))


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("hello")
    assert "neither a directory, a config.json nor a GGUF file" in refusal(str(tmp_path / "model.txt"))
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert "x.gguf" in refusal(str(tmp_path / "x.gguf"))


def test_incomplete_weights_are_told(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "m")
    config = json.loads((directory / "config.json").read_text())
    config_file(directory / "config.json", {**config, "num_hidden_layers": 3})
    assert "missing" in refusal(str(directory))


def test_running_a_planned_architecture_is_refused_in_one_sentence() -> None:
    from pagoda.models.registry import family_for

    with pytest.raises(UnsupportedModelError) as caught:
        family_for(MIXTRAL)
    assert str(caught.value).startswith(
        "`pagoda plan` knows this architecture, but running 'mixtral' is not supported; known: llama"
    )


def test_a_local_model_is_described_without_large_libraries() -> None:
    code = (
        "import sys; from pagoda.models.describe import describe_model; describe_model('smollm2'); "
        "print([m for m in ('torch', 'rich', 'huggingface_hub', 'tokenizers', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
