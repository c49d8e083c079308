"""The safetensors header: equal to the library on valid files, one sentence for each kind of invalid one."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from safetensors.torch import save_file

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.loading.mapped_file import MappedFile
from pagoda.loading.safetensors_header import Placed, read_safetensors_header
from tests.loading.files import entry, safetensors_bytes, tiny_safetensors


def header_of(path: Path, content: bytes) -> dict[str, Placed]:
    file = path / "w.safetensors"
    file.write_bytes(content)
    return read_safetensors_header(MappedFile(file))


def test_equal_to_the_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "matrix": rng.standard_normal((3, 5)).astype(np.float32),
        "half": rng.standard_normal((2, 3, 4)).astype(np.float16),
        "scalar": np.array(3, np.float32),
        "empty": np.empty((0, 4), np.float32),
        "integers": np.arange(6, dtype=np.int64).reshape(2, 3),
        "mask": np.array([True, False]),
    }
    path = tmp_path / "w.safetensors"
    safetensors.numpy.save_file(arrays, path)
    file = MappedFile(path)
    placed = read_safetensors_header(file)
    assert placed.keys() == arrays.keys()
    for name, array in arrays.items():
        stored = file.tensor_at(placed[name].info, placed[name].start)
        assert stored.info.shape == array.shape
        assert stored.data.tobytes() == array.tobytes()
    assert placed["integers"].info.format == "I64"
    assert file.tensor_at(placed["half"].info, placed["half"].start).data.shape == (6, 8)


def test_bfloat16_from_torch(tmp_path: Path) -> None:
    save_file({"w": torch.tensor([[1.0, -2.0]], dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    placed = read_safetensors_header(MappedFile(tmp_path / "w.safetensors"))
    assert (placed["w"].info.format, placed["w"].info.num_bytes) == ("BF16", 4)


def replaced(**changes: object) -> bytes:
    return safetensors_bytes({"w": {**entry((2,), 0, 8), **changes}}, bytes(8))


REFUSED = {
    "empty": (b"", "the file is empty"),
    "short": (bytes(7), "7 bytes are too few"),
    "length": (
        struct.pack("<Q", 2**40) + bytes(100),
        "claims a header of 1,099,511,627,776 bytes, but the file has 108",
    ),
    "limit": (struct.pack("<Q", 2**63) + bytes(8), "headers may have at most 100,000,000"),
    "not JSON": (safetensors_bytes(b"{]"), "not valid JSON"),
    "not UTF-8": (safetensors_bytes(b'{"\xff": 1}'), "not valid JSON"),
    "deep": (safetensors_bytes(b'{"a":' * 100_000), "nested too deeply"),
    "huge integer": (safetensors_bytes(b'{"a":' + b"9" * 10_000 + b"}"), "not valid JSON"),
    "list": (safetensors_bytes([1]), "holds a JSON list, an object is needed"),
    "twice": (safetensors_bytes(b'{"a": 1, "a": 2}'), "the key 'a' comes twice"),
    "entry": (safetensors_bytes({"w": 3}), "'w' is described by 3"),
    "dtype kind": (replaced(dtype=3), "'w' has the dtype 3"),
    "shape kind": (replaced(shape="2"), "'w' has the shape '2'"),
    "negative": (replaced(shape=[-2]), r"'w' has the shape \[-2\]"),
    "float": (replaced(shape=[2.0]), r"'w' has the shape \[2.0\]"),
    "bool": (replaced(shape=[True, 2]), r"'w' has the shape \[True, 2\]"),
    "many dimensions": (replaced(shape=[1] * 9), "must be at most 8 sizes"),
    "overflow": (replaced(shape=[2**40, 2**40]), "sizes whose product is at most 281,474,976,710,656"),
    "overflow of an empty tensor": (replaced(shape=[2**40, 0, 2**40], data_offsets=[0, 0]), "sizes whose product is"),
    "far too large": (replaced(shape=[2**24, 2**24]), "needs 1,125,899,906,842,624 bytes, data_offsets give 8"),
    "size": (replaced(shape=[3]), r"'w' of shape \[3\] in F32 needs 12 bytes, data_offsets give 8"),
    "beyond": (replaced(data_offsets=[0, 16]), "but the file has 8 bytes of data"),
    "backwards": (replaced(data_offsets=[8, 0]), r"'w' has the data_offsets \[8, 0\]"),
    "one offset": (replaced(data_offsets=[8]), r"'w' has the data_offsets \[8\]"),
    "hole": (
        safetensors_bytes({"a": entry((1,), 0, 4), "b": entry((1,), 8, 12)}, bytes(12)),
        "'b' leaves a hole before it",
    ),
    "overlap": (
        safetensors_bytes({"a": entry((2,), 0, 8), "b": entry((2,), 4, 12)}, bytes(12)),
        "'b' overlaps the tensor before it",
    ),
    "the end": (safetensors_bytes({"a": entry((1,), 0, 4)}, bytes(9)), "5 bytes at the end belong to no tensor"),
    "truncated": (tiny_safetensors()[:-1], "but the file has 39 bytes of data"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    content, sentence = REFUSED[case]
    with pytest.raises(ModelFileError, match=sentence) as caught:
        header_of(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert "w.safetensors" in str(caught.value)


def test_unknown_dtype_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="dtype 'F4' is not supported; known: F64, F32"):
        header_of(tmp_path, replaced(dtype="F4"))


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    assert list(header_of(tmp_path, safetensors_bytes({"__metadata__": {"format": "pt"}}))) == []
    assert json.loads(tiny_safetensors()[8:-40])["__metadata__"] == {"format": "pt"}
