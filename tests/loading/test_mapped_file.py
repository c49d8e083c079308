"""A mapped file gives back the memory of what was taken from it."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from pagoda import LLM
from pagoda.loading.mapped_file import MappedFile
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.models.weights import load_model
from tests.models.fakes import LLAMA, FakeCheckpoint

MIB = 1 << 20
needs_smaps = pytest.mark.skipif(sys.platform != "linux", reason="the system must tell what is resident")


def resident(path: Path) -> int:
    """Bytes of the file that this process's memory holds."""
    text, found = Path("/proc/self/smaps").read_text(), 0
    for entry in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE):
        if entry.partition("\n")[0].endswith(str(path)):
            found += 1024 * int(re.findall(r"^Rss: +(\d+) kB", entry, re.MULTILINE)[0])
    return found


@needs_smaps
def test_released_bytes_leave_memory_and_can_still_be_read(tmp_path: Path) -> None:
    content = np.random.default_rng(0).integers(0, 256, 8 * MIB, np.uint8)
    path = tmp_path / "weights"
    content.tofile(path)
    file = MappedFile(path)
    view = file.data[100 : 6 * MIB]
    assert int(file.data.sum()) == int(content.sum())
    assert resident(path) == 8 * MIB
    file.release(100, 6 * MIB)
    assert resident(path) <= 2 * MIB + mmap.PAGESIZE
    np.testing.assert_array_equal(view, content[100 : 6 * MIB])


def test_releasing_nothing_is_fine(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")
    file = MappedFile(tmp_path / "weights")
    file.release(1, 1)
    assert bytes(file.data) == b"abc"


class _Taking:
    """`WeightOps` that keep nothing."""

    def vector(self, stored: object) -> None: ...

    def table(self, stored: object) -> None: ...

    def head(self, stored: object) -> None: ...

    def linear(self, segments: object, biases: object = ()) -> None: ...


def test_every_weight_is_released_once_it_is_taken() -> None:
    checkpoint = FakeCheckpoint({**LLAMA, "attention_bias": True})
    family = family_for(checkpoint.config)
    load_model(checkpoint, family, family.spec(checkpoint.config), _Taking())
    assert checkpoint.released == checkpoint.reads
    assert set(checkpoint.released) == set(checkpoint.tensors)


def test_both_kinds_of_files_can_release(tiny_model: str) -> None:
    checkpoint = open_checkpoint(tiny_model)
    name = next(iter(checkpoint.tensors))
    before = checkpoint.read(name).data.copy()
    checkpoint.release(name)
    np.testing.assert_array_equal(checkpoint.read(name).data, before)
    checkpoint.close()


@needs_smaps
def test_nothing_of_the_file_stays_mapped_once_the_model_is_loaded(tiny_model: str) -> None:
    with LLM(tiny_model, device="cpu", threads=1, num_kv_blocks=8):
        assert resident(Path(tiny_model) / "model.safetensors") == 0
