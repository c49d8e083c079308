"""Uploading through staging buffers: no byte is lost or written over on its way, whenever the device gets to copying."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pagoda.errors import InvariantError
from pagoda.ops.cuda import upload
from pagoda.ops.cuda.upload import Uploader

CPU = torch.device("cpu")


class LazyBuffer:
    """A device that copies as late as it may."""

    def __init__(self, num_bytes: int) -> None:
        self.bytes = np.zeros(num_bytes, np.uint8)
        self.pending: torch.Tensor | None = None
        self.num_copies, self.is_freed = 0, False

    def send(self, target: torch.Tensor) -> None:
        assert self.pending is None
        assert target.shape[0] <= len(self.bytes)
        self.pending = target

    def wait(self) -> None:
        if self.pending is not None:
            self.pending.copy_(torch.from_numpy(self.bytes[: self.pending.shape[0]]))
            self.pending = None
            self.num_copies += 1

    def free(self) -> None:
        assert self.pending is None
        self.is_freed = True


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    """10,000 random bytes of a mapped file, read-only."""
    (tmp_path / "file").write_bytes(np.random.default_rng().bytes(10_000))
    return np.memmap(tmp_path / "file", np.uint8, mode="r")


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 2000, 5500, 10_000])
def test_pieces_of_any_size_arrive_whole(mapped: np.ndarray, size: int) -> None:
    buffers = [LazyBuffer(1000), LazyBuffer(1000)]
    target = torch.zeros(size + 20, dtype=torch.uint8)

    with Uploader(CPU, buffers) as uploader:
        first = uploader.raw(mapped[:size])
        uploader.into(mapped[-size:], target[10:-10])

    assert np.array_equal(first.numpy(), mapped[:size])
    assert np.array_equal(target.numpy()[10:-10], mapped[-size:])
    assert not target[:10].any()
    assert not target[-10:].any()
    assert sum(buffer.num_copies for buffer in buffers) == 2 * -(-size // 1000)
    assert all(buffer.is_freed for buffer in buffers)


def test_buffers_take_turns_so_that_reading_overlaps_copying() -> None:
    buffers = [LazyBuffer(8), LazyBuffer(8)]
    uploader = Uploader(CPU, buffers)

    uploader.raw(np.zeros(48, np.uint8))

    assert [buffer.num_copies for buffer in buffers] == [2, 2]
    assert all(buffer.pending is not None for buffer in buffers)  # two under way at once
    uploader.finish()
    assert [buffer.num_copies for buffer in buffers] == [3, 3]


def test_several_threads_read_what_is_large(monkeypatch: pytest.MonkeyPatch, mapped: np.ndarray) -> None:
    monkeypatch.setattr(upload, "READER_BYTES", 300)
    with Uploader(CPU, [LazyBuffer(4000)]) as uploader:
        got = uploader.raw(mapped)

    assert np.array_equal(got.numpy(), mapped)


@pytest.mark.parametrize("buffers", [None, [LazyBuffer(64), LazyBuffer(64)]])
def test_rows_of_a_stacked_matrix_in_any_format(buffers: list[LazyBuffer] | None) -> None:
    rows = [np.random.default_rng().normal(size=(n, 7)).astype(np.float16) for n in (2, 9)]
    stacked = torch.zeros((11, 7), dtype=torch.float16)

    with Uploader(CPU, buffers) as uploader:
        uploader.into(rows[0], stacked[:2])
        uploader.into(rows[1], stacked[2:])
        empty = uploader.raw(np.zeros((0, 4), np.float32))
        transposed = uploader.raw(rows[1].T)

    assert np.array_equal(stacked.numpy(), np.concatenate(rows))
    assert empty.shape == (0,)
    assert np.array_equal(transposed.view(torch.float16).numpy(), rows[1].T.reshape(-1))


def test_what_does_not_fit_is_refused() -> None:
    matrix, vector = torch.zeros((4, 4), dtype=torch.uint8), np.zeros(4, np.uint8)
    with Uploader(CPU) as uploader:
        with pytest.raises(InvariantError, match="5 bytes do not fit 4"):
            uploader.into(np.zeros(5, np.uint8), matrix[0])
        with pytest.raises(InvariantError, match="do not lie together"):
            uploader.into(vector, matrix[:, 0])
    with pytest.raises(InvariantError, match="after the last"):
        uploader.into(vector, matrix[0])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_pinned_buffers(monkeypatch: pytest.MonkeyPatch, mapped: np.ndarray) -> None:
    monkeypatch.setattr(upload, "STAGING_BYTES", 4096)
    device = torch.device("cuda")
    with Uploader(device) as uploader:
        sums = [int(uploader.raw(mapped).long().sum()) for _ in range(3)]

    assert sums == [int(mapped.sum())] * 3
