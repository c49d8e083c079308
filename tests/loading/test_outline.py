"""Outlines: what planning is told of files, and how little is fetched for that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagoda.errors import ModelFileError
from pagoda.loading.default_model import find_default_model
from pagoda.loading.gguf_header import GGUFHeader
from pagoda.loading.mapped_file import MappedFile
from pagoda.loading.outline import Outline, read_outline
from tests.loading.fake_hub import FakeHub, go_offline, serving
from tests.loading.files import (
    STRING,
    TINY_CONFIG,
    array_pair,
    gguf_bytes,
    huggingface_directory,
    string,
    string_pair,
    tiny_gguf,
    tiny_safetensors,
)

CONFIG = json.dumps(TINY_CONFIG).encode()
REPOSITORIES = {
    "org/single": {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": tiny_safetensors()},
    "org/pickles": {"config.json": CONFIG, "pytorch_model.bin": b"a pickle"},
    "org/quants": {"m-Q4_0.gguf": tiny_gguf(), "m-Q8_0.gguf": tiny_gguf(), "config.json": CONFIG},
    "org/empty": {"README.md": b"read me"},
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving(REPOSITORIES, tmp_path / "cache", monkeypatch) as server:
        yield server


def outline(model: str, revision: str | None = None) -> Outline:
    found = read_outline(model, revision)
    assert found is not None
    return found


def refusal(model: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_outline(model)
    return str(caught.value)


def test_of_safetensors_on_the_hub_only_the_configuration_is_fetched(fake: FakeHub) -> None:
    found = outline("org/single", "main")
    assert found.config["hidden_size"] == 4
    assert (found.tensors, found.file_bytes) == ({}, len(tiny_safetensors()))
    assert fake.downloaded == ["config.json"]


def test_a_repository_without_weights_that_would_be_loaded_can_be_planned(fake: FakeHub) -> None:
    assert outline("org/pickles").file_bytes is None
    assert fake.downloaded == ["config.json"]


def test_of_a_gguf_on_the_hub_only_the_header_is_fetched(fake: FakeHub) -> None:
    found = outline("org/quants:Q8_0")
    assert found.kind == "gguf"
    assert found.config["vocab_size"] == 3
    assert set(found.tensors) == {"token_embd.weight", "norm"}
    assert fake.downloaded == []
    assert {name for name, _, _ in fake.looked_into} == {"m-Q8_0.gguf"}
    assert "choose one as org/quants:QUANTIZATION" in refusal("org/quants")


def test_a_hub_that_does_not_send_headers(fake: FakeHub) -> None:
    fake.range_status = 416
    assert "org/quants" in refusal("org/quants:Q8_0")


def test_without_network_the_cache_answers(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    outline("org/single")
    go_offline(monkeypatch)
    assert outline("org/single").config["hidden_size"] == 4
    assert "it is not in the cache, and offline mode is on" in refusal("org/pickles")


def test_unknown_repositories_and_empty_ones(fake: FakeHub) -> None:
    assert "there is no file or directory of that name, and the hub has none" in refusal("org/none")
    assert "has no config.json" in refusal("org/empty")


def test_names_that_nothing_has_are_not_asked_of_the_hub(fake: FakeHub) -> None:
    for name in ("llama-9b", "./m", "org/m.gguf", "", "a/b/c"):
        assert read_outline(name) is None
    assert fake.asked == []


def test_a_directory_and_its_configuration(tmp_path: Path) -> None:
    directory = huggingface_directory(tmp_path / "m")
    assert outline(str(directory)).tensors
    assert outline(str(directory / "config.json")).tensors == {}


def test_a_header_without_its_vocabulary_is_the_same_otherwise() -> None:
    whole, short = (headers(find_default_model(), vocabulary) for vocabulary in (True, False))
    assert short.tensors == whole.tensors
    assert short.starts == whole.starts
    assert {key for key in whole.metadata if key not in short.metadata} == {
        key for key in whole.metadata if key.startswith("tokenizer.")
    }


def test_a_vocabulary_that_ends_outside_of_the_file_is_refused_unread_too(tmp_path: Path) -> None:
    tokens = array_pair("tokenizer.ggml.tokens", STRING, 3, string("a") + string("b") + b"\xff" * 8)
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([string_pair("general.architecture", "llama"), tokens]))
    with pytest.raises(ModelFileError, match=r"ends inside 'tokenizer\.ggml\.tokens'"):
        headers(path, vocabulary=False)


def headers(path: Path, vocabulary: bool) -> GGUFHeader:
    file = MappedFile(path)
    try:
        return GGUFHeader(file, vocabulary=vocabulary)
    finally:
        file.close()
