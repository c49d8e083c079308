"""Damaged files: every outcome is a checkpoint or a `PagodaError` in one sentence, and never much memory."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagoda.errors import PagodaError
from pagoda.loading.resolve import open_checkpoint
from pagoda.planning.formats import FORMATS, FP8_FORMATS
from pagoda.quantization import dequantize
from tests.fp8_model import compressed
from tests.loading.files import (
    TINY_CONFIG,
    entry,
    huggingface_directory,
    safetensors_bytes,
    tiny_gguf,
    tiny_safetensors,
)
from tests.soak import soak_count

COUNT = soak_count(2000)
MOST_BYTES = 4_000_000
# Bytes that make lengths, counts and offsets huge, negative or zero.
TELLING = (0x00, 0x01, 0x7F, 0x80, 0xFF)


def write_gguf(directory: Path, content: bytes) -> str:
    (directory / "m.gguf").write_bytes(content)
    return str(directory / "m.gguf")


def write_safetensors(directory: Path, content: bytes) -> str:
    return str(huggingface_directory(directory, weights=content))


def write_fp8(directory: Path, content: bytes) -> str:
    return str(huggingface_directory(directory, {**TINY_CONFIG, "quantization_config": FP8}, content))


def write_fp8_config(directory: Path, content: bytes) -> str:
    huggingface_directory(directory, weights=tiny_fp8())
    (directory / "config.json").write_bytes(content)
    return str(directory)


def tiny_fp8() -> bytes:
    header = {"a": entry((2, 4), 0, 8, "F8_E4M3"), "a_scale": entry((2, 1), 8, 12, "BF16"), "b": entry((1,), 12, 16)}
    return safetensors_bytes(header, bytes(range(16)))


def write_config(directory: Path, content: bytes) -> str:
    huggingface_directory(directory)
    (directory / "config.json").write_bytes(content)
    return str(directory)


def write_index(directory: Path, content: bytes) -> str:
    huggingface_directory(directory)
    (directory / "model.safetensors").replace(directory / "1.safetensors")
    (directory / "model.safetensors.index.json").write_bytes(content)
    return str(directory)


CONFIG = b"""{"model_type": "llama", "rope_parameters": {"full_attention": {"rope_theta": 1.5, "rope_type": "linear"}},
 "eos_token_id": [1, 2], "text_config": {"hidden_size": 4}, "n_embd": null}"""
FP8 = compressed("channel")
KINDS: dict[str, tuple[Callable[[Path, bytes], str], bytes]] = {
    "gguf": (write_gguf, tiny_gguf()),
    "safetensors": (write_safetensors, tiny_safetensors()),
    "config": (write_config, CONFIG),
    "fp8": (write_fp8, tiny_fp8()),
    "fp8-config": (write_fp8_config, json.dumps({**TINY_CONFIG, "quantization_config": FP8}).encode()),
    "index": (write_index, b'{"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "1.safetensors"}}'),
}


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_BYTES


def check_sentence(sentence: str) -> None:
    assert sentence
    assert "\n" not in sentence
    assert len(sentence) < 1000


def outcome(model: str) -> bool:
    """Whether the model opens, in which case all its tensors are read; otherwise it is refused in one sentence."""
    try:
        checkpoint = open_checkpoint(model)
    except PagodaError as error:
        check_sentence(str(error))
        return False
    for name, info in checkpoint.tensors.items():
        stored = checkpoint.read(name)
        assert stored.data.size == info.num_bytes
        if info.format in FORMATS | FP8_FORMATS:
            assert dequantize(stored).shape == info.shape
    checkpoint.close()
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_undamaged_file_opens(tmp_path: Path, kind: str) -> None:
    write, valid = KINDS[kind]
    assert outcome(write(tmp_path, valid))


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_anywhere(tmp_path: Path, kind: str) -> None:
    write, valid = KINDS[kind]
    lengths = random.Random(kind).sample(range(len(valid) - 1), min(COUNT, len(valid) - 1))
    for length in [*lengths, 0, len(valid) - 1]:
        assert not outcome(write(tmp_path, valid[:length]))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_flipped_and_shuffled(tmp_path: Path, kind: str) -> None:
    write, valid = KINDS[kind]
    rng = random.Random(kind)
    for _ in range(COUNT):
        content = bytearray(valid)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(content))
            change = rng.randrange(4)
            if change == 0:
                content[at] ^= 1 << rng.randrange(8)
            elif change == 1:
                content[at] = rng.choice(TELLING)
            elif change == 2:  # a whole number's worth of the same byte
                content[at : at + 8] = bytes([rng.choice(TELLING)]) * len(content[at : at + 8])
            else:  # two pieces change places
                other, length = rng.randrange(len(content)), rng.randrange(1, 16)
                length = min(length, len(content) - max(at, other))
                content[at : at + length], content[other : other + length] = (
                    content[other : other + length],
                    content[at : at + length],
                )
        outcome(write(tmp_path, bytes(content)))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_left_out_or_repeated(tmp_path: Path, kind: str) -> None:
    write, valid = KINDS[kind]
    rng = random.Random(kind)
    for _ in range(COUNT // 4 + 1):
        start = rng.randrange(len(valid))
        end = start + rng.randrange(1, 32)
        outcome(write(tmp_path, valid[:start] + valid[end:]))
        outcome(write(tmp_path, valid[:end] + valid[start:]))


@pytest.mark.parametrize("kind", KINDS)
def test_random_bytes(tmp_path: Path, kind: str) -> None:
    write, valid = KINDS[kind]
    rng = random.Random(kind)
    for _ in range(COUNT // 4 + 1):
        content = rng.randbytes(rng.randrange(200))
        assert not outcome(write(tmp_path, content))
        assert not outcome(write(tmp_path, valid[:8] + content))
