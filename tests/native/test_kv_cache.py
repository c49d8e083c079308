"""What the cache keeps of K and V: the numbers that numpy finds, whatever the instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from pagoda import _native
from tests.native.programs import NUM_BLOCKS, Float32, SmallProgram, bf16, kv_codes, step

HEADS, KV_HEADS = 4, 2
# Of heads; the last tokens' numbers are so small or large that fp16 has few bits for their scale, or none.
MAGNITUDES = (1.0, 1e-3, 300.0, 1.0, 0.0, 1e-4, 3e-5, 8e-6, 5e-6, 1e-9, 1e-40, 1e6)


def stored(threads: _native.Threads, kv_format: str, head_dim: int, table: Float32) -> list[Float32]:
    """K and V of each row of q, k and v, each [tokens, KV_HEADS, head_dim], as the cache gives them back."""
    program = SmallProgram(threads, [(KV_HEADS, head_dim)], kv_format=kv_format)
    q = program.tensor(HEADS * head_dim)
    program.native.rope_and_store_kv(q, program.input(threads, table), 0, HEADS)
    inputs = step([(0, len(table))])
    program.native.run(**inputs | {"logit_rows": np.zeros(0, np.int64)})
    return [
        np.concatenate([read(0, block) for block in range(NUM_BLOCKS)])[inputs["slot_mapping"]]
        for read in (program.cache.keys, program.cache.values)
    ]


def random_table(head_dim: int) -> Float32:
    table = np.random.default_rng(head_dim).standard_normal((40, (HEADS + 2 * KV_HEADS) * head_dim), np.float32)
    table[-len(MAGNITUDES) :] *= np.array(MAGNITUDES, np.float32)[:, None]
    return table


def cached(head_dim: int, table: Float32) -> Float32:
    """K and V, [2, tokens, KV_HEADS, head_dim]."""
    return table.reshape(len(table), -1, KV_HEADS, head_dim)[:, -2:].transpose(1, 0, 2, 3)


@pytest.mark.parametrize("head_dim", [4, 20, 64, 512])
def test_int8_is_what_numpy_makes_of_it(threads: _native.Threads, head_dim: int) -> None:
    table = random_table(head_dim)
    codes, scales = kv_codes(cached(head_dim, table))
    assert np.array_equal(np.stack(stored(threads, "int8", head_dim, table)), codes * scales[..., None])
    assert np.abs(codes).max() == 127
    assert (scales == 0).any()


@pytest.mark.parametrize("head_dim", [4, 20, 64, 512])
def test_int8_is_within_half_a_step(threads: _native.Threads, head_dim: int) -> None:
    table = random_table(head_dim)[: -len(MAGNITUDES)]
    exact = cached(head_dim, table)
    steps = np.abs(exact).max(axis=-1, keepdims=True) / 127
    error = np.abs(np.stack(stored(threads, "int8", head_dim, table)) - exact)
    assert np.all(error <= steps * (0.5 + 127 * 2**-11))  # a step is rounded to fp16


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 1e9])
def test_int8_is_no_number_where_a_head_is_none_or_too_large(threads: _native.Threads, broken: float) -> None:
    table = random_table(64)
    table[7, HEADS * 64 + 3] = table[9, -1] = broken
    keys, values = stored(threads, "int8", 64, table)
    expected = np.zeros((2, *keys.shape), bool)
    expected[0, 7, 0] = expected[1, 9, 1] = True
    assert np.array_equal(np.isnan(np.stack([keys, values])), expected)


def test_bf16_is_rounded_to_even(threads: _native.Threads) -> None:
    table = random_table(20)[: -len(MAGNITUDES)]
    assert np.array_equal(np.stack(stored(threads, "bf16", 20, table)), bf16(cached(20, table).copy()))
