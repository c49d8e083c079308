"""Small native programs for tests: their tensors one after the other in the arena, and steps from a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda import _native

BLOCK_SIZE = 16
NUM_BLOCKS = 64
Float32 = npt.NDArray[np.float32]


class SmallProgram:
    """A program over a cache of NUM_BLOCKS blocks of 16."""

    def __init__(
        self,
        threads: _native.Threads,
        layers: Sequence[tuple[int, int]] = ((1, 32),),
        max_tokens: int = 512,
        max_seqs: int = 8,
        max_logit_rows: int = 4,
        *,
        kv_format: str = "bf16",
    ) -> None:
        self.cache = _native.KVCache(layers, NUM_BLOCKS, BLOCK_SIZE, kv_format)
        self.native = _native.Program(threads, self.cache, max_tokens, max_seqs, max_logit_rows, 1 << 24)
        self._max_tokens = max_tokens
        self._end = 0

    def tensor(self, width: int, *forms: _native.Form) -> int:
        """A tensor in these forms, f32 by default."""
        offsets = {}
        for form in forms or ("f32",):
            offsets[form] = self._end
            self._end += _native.form_bytes(form, width, self._max_tokens)
        return self.native.tensor(width, **offsets)

    def input(self, threads: _native.Threads, table: Float32, *forms: _native.Form) -> int:
        """A tensor whose row t is the table's row `input_ids[t]`."""
        out = self.tensor(table.shape[1], *dict.fromkeys(("f32", *forms)))
        self.native.embed(out, float_matrix(threads, table), 1.0)
        return out

    def run(self, requests: Sequence[tuple[int, int]], **changes: Any) -> Float32:
        """One step of requests (tokens already computed, tokens now); request s has blocks of its own."""
        return self.native.run(**(step(requests) | changes))


def step(requests: Sequence[tuple[int, int]], first_block: int = 0) -> dict[str, Any]:
    """Token ids count up from 0 over the step; every row gets logits; block ids are scattered, in a fixed order."""
    scattered = np.random.default_rng(5).permutation(NUM_BLOCKS)
    most = max((-(-sum(request) // BLOCK_SIZE) for request in requests), default=1)
    block_table = np.zeros((len(requests), most), np.int32)
    positions, slots, new_blocks = [], [], []
    used = first_block
    for index, (computed, count) in enumerate(requests):
        blocks = scattered[used : used + -(-(computed + count) // BLOCK_SIZE)]
        used += len(blocks)
        block_table[index, : len(blocks)] = blocks
        new_blocks += list(blocks[-(-computed // BLOCK_SIZE) :])
        for position in range(computed, computed + count):
            positions.append(position)
            slots.append(blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE)
    num_tokens = len(positions)
    counts = [count for _, count in requests]
    return {
        "input_ids": np.arange(num_tokens, dtype=np.int64),
        "positions": np.array(positions, np.int64),
        "slot_mapping": np.array(slots, np.int64),
        "query_start_loc": np.cumsum([0, *counts], dtype=np.int32),
        "seq_lens": np.array([sum(request) for request in requests], np.int32),
        "block_table": block_table,
        "logit_rows": np.arange(num_tokens, dtype=np.int64),
        "new_blocks": np.array(new_blocks, np.int64),
    }


def float_matrix(threads: _native.Threads, numbers: Float32, bias: Float32 | None = None) -> _native.Matrix:
    return _native.Matrix(threads, numbers.shape[1], [("F32", stored("F32", numbers))], bias)


def stored(format_name: str, numbers: Float32) -> npt.NDArray[np.uint8]:
    """Rows as files have them, of formats that are easily made."""
    if format_name == "F32":
        return np.ascontiguousarray(numbers).view(np.uint8)
    if format_name == "F16":
        return numbers.astype(np.float16).view(np.uint8)
    if format_name == "BF16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    assert format_name == "Q8_0"
    groups = numbers.reshape(len(numbers), -1, 32)
    scales = (np.abs(groups).max(axis=2, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(groups / scales.astype(np.float32)).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], axis=2).reshape(len(numbers), -1)


def unpacked(matrix: _native.Matrix) -> Float32:
    return np.stack([matrix.unpack(row) for row in range(matrix.out_features)])


def kv_codes(x: Float32) -> tuple[npt.NDArray[np.int8], Float32]:
    """Vectors [..., head_dim] as the int8 cache has them: codes, and a scale for each vector, which fp16 can hold."""
    scales = (np.abs(x).max(axis=-1) / np.float32(127)).astype(np.float16).astype(np.float32)
    inverses = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    return np.clip(np.rint(x * inverses[..., None]), -127, 127).astype(np.int8), scales


def bf16(x: Float32) -> Float32:
    """Rounded to nearest even, as float32."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
