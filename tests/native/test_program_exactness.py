"""A token's numbers are bit for bit the same alone and in a crowd, in any chunks, and with any number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pagoda import _native
from tests.native.programs import Float32, SmallProgram, float_matrix, step, stored

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 96, 160, 6, 2, 32, 70
FREQUENCIES = (10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)).astype(np.float32)
LENGTHS = (600, 3, 90, 17)  # of four requests; the first needs three splits of the keys


class Decoder(SmallProgram):
    """A layer of a decoder and its head: mixed formats, a window where asked for. logits [T, VOCAB]."""

    def __init__(self, threads: _native.Threads, window: int, kv_format: str) -> None:
        layers = [(KV_HEADS, HEAD_DIM)]
        super().__init__(threads, layers, max_tokens=1024, max_logit_rows=1024, kv_format=kv_format)
        random = np.random.default_rng(11)

        def matrix(in_features: int, *segments: tuple[str, int]) -> _native.Matrix:
            rows = [(name, stored(name, random.standard_normal((n, in_features), np.float32))) for name, n in segments]
            return _native.Matrix(threads, in_features, rows)

        q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        table = random.standard_normal((sum(LENGTHS), HIDDEN), np.float32)
        gain = random.standard_normal(HIDDEN, np.float32)
        x, normed, qkv_out = self.tensor(HIDDEN), self.tensor(HIDDEN, "f32", "bf16", "q8"), self.tensor(q + 2 * kv)
        rotated, attended, projected = self.tensor(q), self.tensor(q, "q8"), self.tensor(HIDDEN)
        total, inner, down = self.tensor(HIDDEN), self.tensor(INNER, "bf16"), self.tensor(HIDDEN)
        last = self.tensor(HIDDEN, "f32", "q8")
        selected = self.tensor(HIDDEN, "f32", "q8")
        native = self.native
        native.embed(x, float_matrix(threads, table), 1.0)
        native.rms_norm(normed, x, gain, 1e-5)
        native.linear(qkv_out, normed, matrix(HIDDEN, ("Q8_0", q), ("BF16", kv), ("F32", kv)))
        native.rope_and_store_kv(rotated, qkv_out, 0, HEADS, native.rope(FREQUENCIES))
        native.paged_attention(attended, rotated, 0, HEADS, HEAD_DIM**-0.5, window)
        native.linear(projected, attended, matrix(q, ("Q8_0", HIDDEN)))
        native.rms_norm(normed, x, gain, 1e-5, projected, total)
        native.gated_linear(inner, normed, matrix(HIDDEN, ("Q8_0", INNER), ("Q8_0", INNER)), "silu")
        native.linear(down, inner, matrix(INNER, ("BF16", HIDDEN)))
        native.layer_norm(last, total, gain, gain, 1e-5, down, x)
        native.select_rows(selected, last)
        native.logits_linear(selected, matrix(HIDDEN, ("Q8_0", VOCAB)))

    def compute(self, chunks: Sequence[Sequence[tuple[int, int]]]) -> list[Float32]:
        """Steps of (computed, count) of every request of LENGTHS; each request's logits, [length, VOCAB]."""
        whole = step([(0, length) for length in LENGTHS])
        starts = np.cumsum([0, *LENGTHS])
        logits = [np.zeros((length, VOCAB), np.float32) for length in LENGTHS]
        for requests in chunks:
            rows = np.concatenate([np.arange(s + a, s + a + n) for s, (a, n) in zip(starts, requests, strict=False)])
            found = self.run(
                requests,
                input_ids=rows,
                slot_mapping=whole["slot_mapping"][rows],
                block_table=whole["block_table"],
                new_blocks=np.array([], np.int64),
            )
            row = 0
            for own, (computed, count) in zip(logits, requests, strict=True):
                own[computed : computed + count] = found[row : row + count]
                row += count
        return logits


def at_once() -> list[list[tuple[int, int]]]:
    return [[(0, length) for length in LENGTHS]]


def in_chunks(size: int) -> list[list[tuple[int, int]]]:
    """All requests together, so many tokens of each a step."""
    return [
        [(min(first, length), max(0, min(size, length - first))) for length in LENGTHS]
        for first in range(0, max(LENGTHS), size)
    ]


def alone() -> list[list[tuple[int, int]]]:
    """One request after the other, its last tokens one by one."""
    steps = []
    for index, length in enumerate(LENGTHS):
        for computed, count in [(0, length - 2), (length - 2, 1), (length - 1, 1)]:
            requests = [(0, 0)] * len(LENGTHS)
            requests[index] = (computed, count)
            steps.append(requests)
    return steps


@pytest.mark.parametrize("kv_format", ["bf16", "int8"])
@pytest.mark.parametrize("window", [0, 200])
@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
def test_the_same_bits_in_every_way(instruction_set: str, window: int, kv_format: str) -> None:
    pools = [_native.Threads(count, instruction_set) for count in (1, 2, 4)]
    decoders = [Decoder(threads, window, kv_format) for threads in pools]
    expected = decoders[0].compute(at_once())
    assert all(np.isfinite(logits).all() for logits in expected)
    ways = [(1, at_once()), (2, at_once()), (1, in_chunks(77)), (2, in_chunks(250)), (0, alone()), (1, alone())]
    for decoder, chunks in ways:
        for found, wanted in zip(decoders[decoder].compute(chunks), expected, strict=True):
            assert found.tobytes() == wanted.tobytes()
    for threads in pools:
        threads.close()
