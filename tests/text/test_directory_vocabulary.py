"""Tokenizers in Hugging Face directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.text.directory_vocabulary import tokenizer_from_directory
from tests.text.texts import TEXTS
from tests.text.tiny import byte_level_metadata, write_llama_directory


def test_a_llama_directory(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_directory(write_llama_directory(tmp_path))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.end_token_ids) == (1, 2, {2})
    assert tokenizer.adds_bos
    assert tokenizer.special_token_ids == {0, 1, 2}
    assert [tokenizer.token_text(token_id) for token_id in tokenizer.encode("abc")] == ["<s>", " a", "bc"]
    assert tokenizer.encode("abc</s>")[-1] == 2


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_ids_and_text_are_those_of_transformers(tmp_path: Path, text: str) -> None:
    from transformers import PreTrainedTokenizerFast

    ours = tokenizer_from_directory(write_llama_directory(tmp_path))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ids = theirs(text)["input_ids"]
    assert ours.encode(text) == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == text


def test_added_tokens_may_be_runs_of_spaces(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    file = write_llama_directory(tmp_path) / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    added = {**content["added_tokens"][0], "id": 271, "content": "▁▁▁", "special": False, "normalized": False}
    content["added_tokens"].append(added)
    file.write_text(json.dumps(content), encoding="utf-8")
    ours = tokenizer_from_directory(tmp_path)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(file))
    ids = [*theirs("abc")["input_ids"], 271, *ours.encode("hi", add_special_tokens=False)]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == "abc    hi"


def test_tokenizer_config_decides_about_bos(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_directory(write_llama_directory(tmp_path, add_bos_token=False, add_eos_token=True))
    assert not tokenizer.adds_bos
    assert tokenizer.encode("abc")[0] != 1
    assert tokenizer.encode("abc")[-1] == 2


def test_end_tokens_of_generation_config(tmp_path: Path) -> None:
    (write_llama_directory(tmp_path) / "generation_config.json").write_text('{"eos_token_id": [0, 2, 99999]}')
    assert tokenizer_from_directory(tmp_path).end_token_ids == {0, 2}


@pytest.mark.parametrize(
    "template",
    ["T", [{"name": "tool_use", "template": "U"}, {"name": "default", "template": "T"}]],
    ids=["one", "named"],
)
def test_chat_template_of_tokenizer_config(tmp_path: Path, template: object) -> None:
    assert tokenizer_from_directory(write_llama_directory(tmp_path, chat_template=template)).chat_template == "T"


def test_chat_template_files_come_first(tmp_path: Path) -> None:
    write_llama_directory(tmp_path, chat_template="config")
    (tmp_path / "chat_template.json").write_text('{"chat_template": "json"}')
    assert tokenizer_from_directory(tmp_path).chat_template == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert tokenizer_from_directory(tmp_path).chat_template == "jinja"


def test_gpt2_files_without_a_tokenizer_json(tmp_path: Path) -> None:
    metadata = byte_level_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"], "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    merges = "\n".join(["#version: 0.2", *metadata["tokenizer.ggml.merges"], ""])
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    tokenizer = tokenizer_from_directory(tmp_path)
    assert [tokenizer.token_text(i) for i in tokenizer.encode("hello w<|endoftext|>")] == [
        "hello",
        " w",
        "<|endoftext|>",
    ]
    assert tokenizer.end_token_ids == {len(tokens) - 1}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no tokenizer.json"),
        ({"tokenizer.model": "x"}, "has a tokenizer.model but no tokenizer.json"),
        ({"tokenizer.json": "{"}, "tokenizer.json is not a usable tokenizer"),
        ({"tokenizer.json": '{"model": {}}'}, "tokenizer.json is not a usable tokenizer"),
        ({"tokenizer_config.json": "["}, "tokenizer_config.json is not JSON"),
        ({"tokenizer_config.json": "[1]"}, r"tokenizer_config.json has \[1\], must be a JSON object"),
        ({"vocab.json": '{"a": -1}', "merges.txt": ""}, "'a' has the id -1"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b c"}, "'a b c' is not two tokens"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, "merge 0 needs the token 'b'"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        tokenizer_from_directory(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_makes_the_library_panic_is_named(tmp_path: Path) -> None:
    file = write_llama_directory(tmp_path) / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["post_processor"]["special_tokens"] = {}
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"tokenizer.json is not a usable tokenizer: "):
        tokenizer_from_directory(tmp_path)


def test_other_kinds_of_vocabulary_are_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match="tokenizer decoder 'WordPiece'"):
        tokenizer_from_directory(tmp_path)


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "generation_config.json", "chat_template.json", "chat_template.jinja"]
)
def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    file = write_llama_directory(tmp_path) / name
    file.unlink(missing_ok=True)
    file.mkdir()
    with pytest.raises(ModelFileError, match=f"{name} is not an ordinary file"):
        tokenizer_from_directory(tmp_path)


@pytest.mark.parametrize("token", ["\ud800", {"content": "\ud800"}])
def test_a_named_token_that_is_no_text_is_named(tmp_path: Path, token: object) -> None:
    directory = write_llama_directory(tmp_path)
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": token}))
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json: eos_token: got '.ud800'"):
        tokenizer_from_directory(directory)
