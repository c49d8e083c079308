"""A GGUF checkpoint: one file, split files, RoPE divisors, and the embedded default against the `gguf` package."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from pagoda.errors import ModelFileError
from pagoda.loading.default_model import default_model_path
from pagoda.loading.gguf import GGUFCheckpoint
from pagoda.quantization import dequantize
from tests.loading.files import U16, gguf_bytes, pair, string_pair, tensor, tiny_gguf


def part(number: int, count: int, tensors: list[bytes], data: bytes, total: int | None = None) -> bytes:
    pairs = [pair("split.no", U16, struct.pack("<H", number)), pair("split.count", U16, struct.pack("<H", count))]
    if number == 0:
        pairs += [string_pair("general.architecture", "llama")]
        pairs += [pair("split.tensors.count", 5, struct.pack("<i", total or 2))]
    return gguf_bytes(pairs, tensors, data)


def write_parts(directory: Path, contents: list[bytes]) -> list[Path]:
    paths = [directory / f"m-{number:05}-of-{len(contents):05}.gguf" for number in range(1, len(contents) + 1)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


ONE = np.full(8, 1, "<f4").tobytes()
TWO = np.full(8, 2, "<f4").tobytes()
PARTS = [part(0, 3, [], b""), part(1, 3, [tensor("a", (8,))], ONE), part(2, 3, [tensor("b", (4, 2))], TWO)]


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    checkpoint = GGUFCheckpoint(path, "tiny")
    assert (checkpoint.kind, checkpoint.name, checkpoint.directory) == ("gguf", "tiny", None)
    assert checkpoint.config["hidden_size"] == 4
    assert checkpoint.config["vocab_size"] == 3
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == ["a", "é", ""]
    assert dequantize(checkpoint.read("token_embd.weight")).tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert list(checkpoint.tensors) == ["token_embd.weight", "norm"]
    with pytest.raises(KeyError):
        checkpoint.read("other")
    checkpoint.close()


@pytest.mark.parametrize("given", [0, 2])
def test_any_part_opens_the_whole(tmp_path: Path, given: int) -> None:
    checkpoint = GGUFCheckpoint(write_parts(tmp_path, PARTS)[given], "m")
    assert dequantize(checkpoint.read("a")).tolist() == [1] * 8
    assert dequantize(checkpoint.read("b")).tolist() == [[2] * 4] * 2
    assert checkpoint.metadata["general.architecture"] == "llama"


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, PARTS)
    paths[1].unlink()
    with pytest.raises(ModelFileError, match=r"the part m-00002-of-00003\.gguf of this split file is missing"):
        GGUFCheckpoint(paths[0], "m")


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        ([PARTS[0], PARTS[2], PARTS[1]], "split.no is 2, its name says 1"),
        ([PARTS[0], PARTS[1]], "split.count is 3, but its name says 2 parts"),
        ([PARTS[0], PARTS[1], part(2, 3, [tensor("a", (8,))], TWO)], "the tensor 'a' is in m-00002-of-00003.gguf too"),
        ([part(0, 3, [], b"", total=3), *PARTS[1:]], "split.tensors.count is 3, but the 3 parts have 2 tensors"),
        ([PARTS[0], PARTS[1], tiny_gguf()], "split.count is None, but its name says 3 parts"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path: Path, contents: list[bytes], sentence: str) -> None:
    with pytest.raises(ModelFileError, match=sentence):
        GGUFCheckpoint(write_parts(tmp_path, contents)[0], "m")


def test_a_renamed_part_is_not_taken_for_a_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "renamed.gguf"
    path.write_bytes(PARTS[1])
    with pytest.raises(ModelFileError, match=r"split\.count is 3, but its name says 1 part$"):
        GGUFCheckpoint(path, "m")


def test_a_part_number_beyond_the_count(tmp_path: Path) -> None:
    path = tmp_path / "m-00004-of-00003.gguf"
    path.write_bytes(PARTS[0])
    with pytest.raises(ModelFileError, match="its name says part 4 of 3"):
        GGUFCheckpoint(path, "m")


def test_rope_divisors_come_with_the_config(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    architecture = string_pair("general.architecture", "llama")
    path.write_bytes(gguf_bytes([architecture], [tensor("rope_freqs.weight", (8,))], TWO))
    assert GGUFCheckpoint(path, "m").config["rope_divisors"] == [2.0] * 8
    path.write_bytes(gguf_bytes([architecture], [tensor("rope_freqs.weight", (4, 2))], TWO))
    with pytest.raises(ModelFileError, match="a vector in F32 is needed"):
        GGUFCheckpoint(path, "m")


@pytest.mark.slow
@pytest.mark.smollm2
def test_the_embedded_default_against_the_reference_package() -> None:
    path = default_model_path()
    checkpoint, reference = GGUFCheckpoint(path, "smollm2"), gguf.GGUFReader(path)
    assert [tensor.name for tensor in reference.tensors] == list(checkpoint.tensors)
    for their in reference.tensors:
        assert np.array_equal(checkpoint.read(their.name).data.ravel(), their.data.view(np.uint8).ravel())
    for name in ("blk.0.ffn_down.weight", "blk.7.attn_q.weight", "output_norm.weight"):
        their = next(tensor for tensor in reference.tensors if tensor.name == name)
        assert np.array_equal(dequantize(checkpoint.read(name)), gguf.quants.dequantize(their.data, their.tensor_type))
    tokens = reference.fields["tokenizer.ggml.tokens"]
    for index in (0, 1, 2, 1000, 49151):
        assert checkpoint.metadata["tokenizer.ggml.tokens"][index] == tokens.contents(index)
    assert len(checkpoint.metadata["tokenizer.ggml.merges"]) == 48900
    assert checkpoint.config["num_hidden_layers"] == 30
    assert checkpoint.config["head_dim"] == 64
    assert checkpoint.config["tie_word_embeddings"] is True
    assert checkpoint.generation_config["eos_token_id"] == [2]
