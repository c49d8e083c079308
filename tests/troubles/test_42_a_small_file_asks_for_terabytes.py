"""Trouble 42: a file of 1.5 KB makes the loader allocate 4 TiB; header fields overflow and are then trusted.

Right: no claim of a header is believed before it fits the file's size; each is refused in a sentence, almost without memory.
"""

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagoda.errors import ModelFileError
from pagoda.loading.resolve import open_checkpoint
from tests.loading.files import (
    STRING,
    U8,
    array_pair,
    entry,
    gguf_bytes,
    huggingface_directory,
    pair,
    safetensors_bytes,
    string_pair,
    tensor,
)

SIZE = 1500
MOST_BYTES = 2_000_000
LLAMA = string_pair("general.architecture", "llama")

GGUF = {
    "4 TiB of weights": gguf_bytes([LLAMA], [tensor("w", (1 << 20, 1 << 20))]),
    "4 TiB of 4-bit weights": gguf_bytes([LLAMA], [tensor("w", (1 << 20, 1 << 22), 12)]),
    "a product that is 0 in 64 bits": gguf_bytes([LLAMA], [tensor("w", (1 << 32, 1 << 32))]),
    "a product that is small in 64 bits": gguf_bytes([LLAMA], [tensor("w", ((1 << 62) + 8, 4))]),
    "an offset that wraps around": gguf_bytes([LLAMA], [tensor("w", (8,), 0, (1 << 64) - 32)]),
    "2^63 tensors": gguf_bytes([LLAMA], num_tensors=1 << 63),
    "2^63 metadata pairs": gguf_bytes([LLAMA], num_pairs=1 << 63),
    "a string of 2^40 bytes": gguf_bytes([pair("k", STRING, struct.pack("<Q", 1 << 40))]),
    "a name of 2^40 bytes": gguf_bytes([struct.pack("<Q", 1 << 40)]),
    "a length that wraps around": gguf_bytes([pair("k", STRING, struct.pack("<Q", (1 << 64) - 8))]),
    "2^42 numbers": gguf_bytes([array_pair("k", U8, 1 << 42, b"")]),
    "2^61 strings": gguf_bytes([array_pair("k", STRING, 1 << 61, b"")]),
    "2^32 dimensions": gguf_bytes([LLAMA], [struct.pack("<Q", 1) + b"w" + b"\xff" * 4]),
}
SAFETENSORS = {
    "4 TiB of weights": safetensors_bytes({"w": entry((1 << 20, 1 << 20), 0, 1 << 42)}),
    "4 TiB in the little there is": safetensors_bytes({"w": entry((1 << 20, 1 << 20), 0, 1000)}, bytes(1000)),
    "a product that is 0 in 64 bits": safetensors_bytes({"w": entry((1 << 32, 1 << 32), 0, 0)}),
    "a header of 4 TiB": struct.pack("<Q", 1 << 42) + b"{}",
    "a header length that wraps around": struct.pack("<Q", (1 << 64) - 1) + b"{}",
    "offsets of a hundred digits": safetensors_bytes({"w": entry((1,), 0, 10**100)}),
}


@pytest.fixture(autouse=True)
def hardly_any_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_BYTES


def check_refused(model: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint(str(model))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("case", GGUF)
def test_gguf(tmp_path: Path, case: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF[case] + bytes(SIZE - len(GGUF[case])))
    check_refused(path)


@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors(tmp_path: Path, case: str) -> None:
    check_refused(huggingface_directory(tmp_path, weights=SAFETENSORS[case]))
