"""Models from the hub: which files are fetched, the cache, offline mode, and one sentence for each failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.file_download
import pytest
from huggingface_hub import constants

from pagoda.errors import ModelFileError
from pagoda.loading.resolve import open_checkpoint
from tests.loading.fake_hub import SHA, FakeHub, go_offline, serving
from tests.loading.files import TINY_CONFIG, entry, safetensors_bytes, tiny_gguf, tiny_safetensors
from tests.loading.test_gguf_checkpoint import PARTS

CONFIG = json.dumps(TINY_CONFIG).encode()
REPOSITORIES = {
    "org/single": {
        "config.json": CONFIG,
        "tokenizer.json": b"{}",
        "chat_template.jinja": b"hello",
        "model.safetensors": tiny_safetensors(),
        "consolidated.safetensors": b"the vendor's copy",
        "pytorch_model.bin": b"a pickle",
        "modeling_x.py": b"raise SystemExit",
        "README.md": b"read me",
        "onnx/config.json": b"{}",
    },
    "org/sharded": {
        "config.json": CONFIG,
        "model.safetensors.index.json": b'{"weight_map": {"x": "1.safetensors", "y": "2.safetensors"}}',
        "1.safetensors": safetensors_bytes({"x": entry((4,), 0, 16)}, bytes(16)),
        "2.safetensors": safetensors_bytes({"y": entry((4,), 0, 16)}, bytes(16)),
    },
    "org/quants": {
        "m-Q4_K_M.gguf": tiny_gguf(),
        "m-UD-IQ4_K_M.gguf": tiny_gguf(),
        "q8/m-Q8_0.gguf": tiny_gguf(),
        "mmproj-F16.gguf": tiny_gguf(),
        "config.json": CONFIG,
    },
    "org/split": {f"Q8_0/m-Q8_0-{part:05}-of-00003.gguf": PARTS[part - 1] for part in (1, 2, 3)},
    "org/pickles": {"config.json": CONFIG, "pytorch_model.bin": b"a pickle"},
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving(REPOSITORIES, tmp_path / "cache", monkeypatch) as server:
        yield server


def refusal(model: str, revision: str | None = None) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint(model, revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_what_is_needed_is_fetched(fake: FakeHub) -> None:
    checkpoint = open_checkpoint("org/single")
    assert checkpoint.kind == "huggingface"
    assert checkpoint.name == "org/single"
    assert list(checkpoint.tensors) == ["a", "b"]
    assert fake.downloaded == ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]


def test_progress_bars_are_for_terminals(fake: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    open_checkpoint("org/single")
    assert capsys.readouterr() == ("", "")


def test_shards(fake: FakeHub) -> None:
    assert list(open_checkpoint("org/sharded", "main").tensors) == ["x", "y"]
    assert list(open_checkpoint("org/sharded", SHA).tensors) == ["x", "y"]


def test_what_is_cached_is_not_fetched_again(fake: FakeHub) -> None:
    open_checkpoint("org/single")
    before = fake.downloaded
    open_checkpoint("org/single")
    assert fake.downloaded == before


@pytest.mark.parametrize(
    ("choice", "file"),
    [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("Q8_0", "q8/m-Q8_0.gguf"),
        ("IQ4_K_M", "m-UD-IQ4_K_M.gguf"),
        ("m-Q4_K_M.gguf", "m-Q4_K_M.gguf"),
    ],
)
def test_a_gguf_by_its_quantization(fake: FakeHub, choice: str, file: str) -> None:
    assert open_checkpoint(f"org/quants:{choice}").kind == "gguf"
    assert fake.downloaded == [file]


def test_a_split_gguf_is_fetched_whole(fake: FakeHub) -> None:
    assert list(open_checkpoint("org/split").tensors) == ["a", "b"]
    assert list(open_checkpoint("org/split:Q8_0").tensors) == ["a", "b"]
    assert len(fake.downloaded) == 3


def test_without_a_choice_files_and_sizes_are_listed(fake: FakeHub) -> None:
    sentence = refusal("org/quants")
    assert sentence.startswith("hub model org/quants: has several GGUF models; choose one as org/quants:QUANTIZATION")
    assert "m-Q4_K_M.gguf (0.0 MB), m-UD-IQ4_K_M.gguf (0.0 MB), q8/m-Q8_0.gguf (0.0 MB)" in sentence
    assert "mmproj" not in sentence
    assert fake.downloaded == []


def test_a_choice_that_is_not_there(fake: FakeHub) -> None:
    assert "has no GGUF models for 'Q2_K'; choose one as" in refusal("org/quants:Q2_K")
    assert "has no GGUF model" in refusal("org/single:Q4_0")


def test_a_dropped_connection_is_resumed(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.file_download.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 64)
    fake.broken.add("m-Q4_K_M.gguf")
    assert open_checkpoint("org/quants:Q4_K_M").kind == "gguf"
    arrived = len(tiny_gguf()) // 2 // 64 * 64
    assert any(line.startswith("GET") and line.endswith(f"bytes={arrived}-") for line in fake.asked)


def test_pickles_are_not_fetched(fake: FakeHub) -> None:
    assert "has neither safetensors nor GGUF files (pickles are never loaded)" in refusal("org/pickles")
    assert fake.downloaded == []


def test_unknown_repository_and_revision(fake: FakeHub) -> None:
    assert "the hub has none, or a private one" in refusal("org/nothing")
    assert "at revision v9: has no branch, tag or commit 'v9'" in refusal("org/single", "v9")


def test_a_gated_repository(fake: FakeHub) -> None:
    fake.gated.add("org/single")
    assert "is gated; accept its terms on its page, then log in with `hf auth login`" in refusal("org/single")


def test_offline_and_not_cached(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch)
    assert refusal("org/single") == (
        "hub model org/single: there is no file or directory of that name, it is not in the cache, "
        "and offline mode is on (HF_HUB_OFFLINE)"
    )


def test_offline_and_cached(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    open_checkpoint("org/single")
    open_checkpoint("org/quants:Q8_0")
    asked = len(fake.asked)
    go_offline(monkeypatch)
    assert list(open_checkpoint("org/single").tensors) == ["a", "b"]
    assert open_checkpoint("org/quants:Q8_0").kind == "gguf"
    sentence = refusal("org/quants:Q4_K_M")
    assert "has no GGUF models for 'Q4_K_M'" in sentence
    assert sentence.endswith("(only the cache was searched, since offline mode is on (HF_HUB_OFFLINE))")
    assert len(fake.asked) == asked


def test_no_network(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    open_checkpoint("org/single")
    # Nothing listens on the discard port.
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert open_checkpoint("org/single").kind == "huggingface"
    assert "is not in the cache, and the hub cannot be reached" in refusal("org/sharded")


def test_a_hub_that_fails(fake: FakeHub) -> None:
    open_checkpoint("org/single")
    fake.status = 500
    assert open_checkpoint("org/single").kind == "huggingface"
    assert "is not in the cache, and the hub answered with status 500" in refusal("org/sharded")
