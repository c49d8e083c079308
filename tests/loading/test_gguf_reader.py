"""The GGUF reader: equal to the `gguf` package on valid files, one sentence for each kind of invalid one."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from pagoda.errors import ModelFileError, UnsupportedModelError
from pagoda.loading.gguf_reader import GGUFReader
from tests.loading.files import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U8,
    U32,
    array_pair,
    gguf_bytes,
    pair,
    string,
    string_pair,
    tensor,
    tiny_gguf,
    u32_pair,
)


def opened(path: Path, content: bytes) -> GGUFReader:
    file = path / "model.gguf"
    file.write_bytes(content)
    return GGUFReader(file)


def written(path: Path, alignment: int | None) -> Path:
    writer = gguf.GGUFWriter(path / "model.gguf", "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    for name, value in (("uint8", 255), ("int8", -128), ("uint16", 65535), ("int16", -5), ("uint32", 2**32 - 1)):
        getattr(writer, f"add_{name}")(f"x.{name}", value)
    for name, number in (
        ("int32", -7),
        ("uint64", 2**64 - 1),
        ("int64", -(2**63)),
        ("float32", 0.5),
        ("float64", 1e300),
    ):
        getattr(writer, f"add_{name}")(f"x.{name}", number)
    writer.add_bool("x.bool", True)
    writer.add_string("x.string", "né 漢字 🙂")
    writer.add_string("x.empty", "")
    writer.add_array("x.strings", ["", "a", "漢字", "\0"])
    writer.add_array("x.ints", [1, -2, 3])
    writer.add_array("x.floats", [1.5, -2.5])
    writer.add_array("x.bools", [True, False])
    rng = np.random.default_rng(0)
    writer.add_tensor("f32", rng.standard_normal((3, 64)).astype(np.float32))
    writer.add_tensor("f16", rng.standard_normal((5,)).astype(np.float16))
    writer.add_tensor("deep", rng.standard_normal((2, 3, 4, 5)).astype(np.float32))
    writer.add_tensor("ints", np.arange(7, dtype=np.int32))
    for name in ("BF16", "Q4_0", "Q8_0"):
        kind = gguf.GGMLQuantizationType[name]
        packed = gguf.quants.quantize(rng.standard_normal((3, 64)).astype(np.float32), kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path / "model.gguf"


@pytest.mark.parametrize("alignment", [None, 64, 256])
def test_equal_to_the_reference_package(tmp_path: Path, alignment: int | None) -> None:
    path = written(tmp_path, alignment)
    ours, reference = GGUFReader(path), gguf.GGUFReader(path)
    wanted = {key: field.contents() for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == wanted
    assert list(ours.tensors) == [tensor.name for tensor in reference.tensors]
    for their in reference.tensors:
        stored = ours.read(their.name)
        assert stored.info.shape == tuple(reversed(their.shape.tolist()))
        assert stored.info.format == their.tensor_type.name
        assert stored.data.tobytes() == their.data.tobytes()
        rows = int(np.prod(stored.info.shape[:-1]))
        assert stored.data.shape == (rows, their.n_bytes // rows)


def test_booleans_are_booleans_and_numbers_are_plain(tmp_path: Path) -> None:
    metadata = opened(tmp_path, tiny_gguf()).metadata
    assert metadata["flag"] is True
    assert metadata["tokenizer.ggml.tokens"] == ["a", "é", ""]
    assert metadata["tokenizer.ggml.token_type"] == [1, -1, 3]
    assert type(metadata["llama.embedding_length"]) is int


def test_version_2_is_read(tmp_path: Path) -> None:
    assert opened(tmp_path, gguf_bytes([u32_pair("a", 1)], version=2)).metadata == {"a": 1}


def test_a_tensor_stays_valid_after_close(tmp_path: Path) -> None:
    reader = opened(tmp_path, tiny_gguf())
    stored = reader.read("token_embd.weight")
    reader.close()
    assert stored.data.view("<f4")[2, 3] == 11
    with pytest.raises(KeyError):
        reader.read("token_embd.weight")


def test_the_file_is_not_writable_through_a_tensor(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        opened(tmp_path, tiny_gguf()).read("norm").data[0, 0] = 1


HUGE = 2**63
REFUSED = {
    "empty file": (b"", "the file is empty"),
    "too short": (b"GGUF", "is not a GGUF file"),
    "other magic": (b"GGML" + bytes(100), "is not a GGUF file"),
    "version 1": (gguf_bytes(version=1), "is GGUF version 1; little-endian versions 2 and 3"),
    "version 4": (gguf_bytes(version=4), "is GGUF version 4"),
    "big-endian": (gguf_bytes(version=3 << 24), "is GGUF big-endian version 3"),
    "tensors": (gguf_bytes(num_tensors=HUGE), "claims 9,223,372,036,854,775,808 tensors"),
    "pairs": (gguf_bytes(num_pairs=HUGE), "claims 9,223,372,036,854,775,808 metadata pairs"),
    "key length": (
        gguf_bytes([struct.pack("<Q", 2**40)], data=bytes(64)),
        "claims a metadata key of 1,099,511,627,776 bytes, at most 65,535",
    ),
    "string length": (
        gguf_bytes([pair("k", STRING, struct.pack("<Q", 2**40))], data=bytes(64)),
        "ends inside 'k', its 128 bytes are too few",
    ),
    "array count": (
        gguf_bytes([array_pair("k", U32, HUGE, b"")], data=bytes(64)),
        "claims 9,223,372,036,854,775,808 numbers for 'k'",
    ),
    "strings": (
        gguf_bytes([array_pair("k", STRING, HUGE, b"")], data=bytes(64)),
        "claims 9,223,372,036,854,775,808 strings for 'k'",
    ),
    "string in array": (
        gguf_bytes([array_pair("k", STRING, 1, struct.pack("<Q", 2**63))], data=bytes(64)),
        "ends inside 'k'",
    ),
    "nested array": (
        gguf_bytes([array_pair("k", ARRAY, 1, struct.pack("<IQ", U8, 0))], data=bytes(64)),
        "'k' holds an array inside an array",
    ),
    "value type": (gguf_bytes([pair("k", 13, bytes(8))]), "'k' holds the unknown value type 13"),
    "truth value": (gguf_bytes([pair("k", BOOL, b"\2")], data=bytes(64)), "'k' is neither 0 nor 1"),
    "key not UTF-8": (gguf_bytes([string(b"\xff") + struct.pack("<IB", U8, 1)]), "a metadata key is not valid UTF-8"),
    "value not UTF-8": (gguf_bytes([pair("k", STRING, string(b"\xc3"))]), "a string of 'k' is not valid UTF-8"),
    "key twice": (gguf_bytes([u32_pair("k", 1), u32_pair("k", 2)]), "the metadata key 'k' comes twice"),
    "alignment 0": (gguf_bytes([u32_pair("general.alignment", 0)]), "general.alignment is 0, must be a power of two"),
    "alignment 33": (gguf_bytes([u32_pair("general.alignment", 33)]), "general.alignment is 33"),
    "alignment huge": (gguf_bytes([u32_pair("general.alignment", 2**31)]), "general.alignment is 2147483648"),
    "alignment text": (gguf_bytes([string_pair("general.alignment", "32")]), "general.alignment is '32'"),
    "alignment float": (
        gguf_bytes([pair("general.alignment", F32, struct.pack("<f", 32.0))]),
        "general.alignment is 32.0",
    ),
    "dimensions": (
        gguf_bytes(tensors=[tensor("t", (1, 1, 1, 1, 1))], data=bytes(64)),
        "'t' has 5 dimensions, at most 4",
    ),
    "size 0": (gguf_bytes(tensors=[tensor("t", (4, 0))], data=bytes(64)), r"shape \(0, 4\), no size may be 0"),
    "type 4": (gguf_bytes(tensors=[tensor("t", (32,), 4)], data=bytes(64)), "unknown type number 4"),
    "product": (
        gguf_bytes(tensors=[tensor("t", (2**32, 2**32))], data=bytes(64)),
        "would take 73,786,976,294,838,206,464 bytes, but the file has",
    ),
    "product of all": (gguf_bytes(tensors=[tensor("t", (2**63,) * 4, 0)], data=bytes(64)), "would take"),
    "beyond the end": (
        gguf_bytes(tensors=[tensor("t", (16,), 0, 32)], data=bytes(64)),
        "'t' ends at byte 160, but the file has 128",
    ),
    "offset": (gguf_bytes(tensors=[tensor("t", (1,), 0, 2**64 - 32)], data=bytes(64)), "'t' ends at byte"),
    "misaligned": (
        gguf_bytes(tensors=[tensor("t", (4,), 0, 8)], data=bytes(64)),
        "'t' begins at 8, not a multiple of 32",
    ),
    "blocks": (gguf_bytes(tensors=[tensor("t", (33,), 8)], data=bytes(64)), "which are not whole Q8_0 blocks of 32"),
    "overlap": (
        gguf_bytes(tensors=[tensor("t", (16,)), tensor("u", (8,), 0, 32)], data=bytes(64)),
        "the tensors 't' and 'u' overlap",
    ),
    "tensor twice": (
        gguf_bytes(tensors=[tensor("t", (8,)), tensor("t", (8,), 0, 32)], data=bytes(64)),
        "the tensor 't' comes twice",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    content, sentence = REFUSED[case]
    with pytest.raises(ModelFileError, match=sentence) as caught:
        opened(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert "model.gguf" in str(caught.value)


def test_a_known_type_that_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="'Q2_K' is not supported; known: F32"):
        opened(tmp_path, gguf_bytes(tensors=[tensor("t", (256,), 10)], data=bytes(128)))
