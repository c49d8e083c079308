"""The script that checks tokenizers against llama.cpp's vectors: which texts and ids belong together, what it finds."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from tests.text.tiny import byte_level_metadata
from tests.text.vectors import SEPARATOR, Vector, failures, read_vectors

TEXTS = ["hello", "", "\n", " \r\n", "h e"]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "ggml-vocab-tiny.gguf"
    metadata = byte_level_metadata()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(metadata["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(metadata["tokenizer.ggml.pre"])
    writer.add_token_list(metadata["tokenizer.ggml.tokens"])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    writer.add_token_merges(metadata["tokenizer.ggml.merges"])
    writer.add_eos_token_id(metadata["tokenizer.ggml.eos_token_id"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def write_vectors(vocabulary: Path, texts: list[str], lines: list[str]) -> None:
    vocabulary.with_name(vocabulary.name + ".inp").write_bytes("".join(text + SEPARATOR for text in texts).encode())
    vocabulary.with_name(vocabulary.name + ".out").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def test_each_text_has_its_line_of_ids_the_empty_one_too(vocabulary: Path) -> None:
    write_vectors(vocabulary, TEXTS, [" 1 2", "", "3", "4 5 6", "7"])
    vectors = read_vectors(vocabulary)
    assert [vector.text for vector in vectors] == TEXTS
    assert [vector.token_ids for vector in vectors] == [[1, 2], [], [3], [4, 5, 6], [7]]


def test_as_many_lines_as_texts_are_needed(vocabulary: Path) -> None:
    write_vectors(vocabulary, TEXTS, ["1"])
    with pytest.raises(ValueError, match="5 texts, but 1 lines of ids"):
        read_vectors(vocabulary)


def test_only_texts_with_other_ids_fail(vocabulary: Path) -> None:
    hello = byte_level_metadata()["tokenizer.ggml.tokens"].index("hello")
    found = failures(vocabulary, [Vector("hello", [hello]), Vector("", []), Vector("hello", [1])])
    assert found == [f"'hello': expected [1], got [{hello}]"]
