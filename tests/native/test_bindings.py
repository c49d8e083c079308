"""What the native module refuses: wrong arrays, tensors that do not fit, and indices that would leave a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pagoda import _native
from tests.native.programs import NUM_BLOCKS, SmallProgram, float_matrix, step, stored

EYE = np.eye(32, dtype=np.float32)


def test_formats_and_sizes() -> None:
    assert _native.instruction_sets()[-1] == "portable"
    assert [_native.input_form(name) for name in ("F32", "F16", "BF16", "Q4_K")] == ["f32", "f32", "bf16", "q8"]
    assert _native.form_bytes("f32", 96, 3) == 3 * 7 * 64  # an odd number of cache lines a row
    assert _native.form_bytes("bf16", 33, 1) == 3 * 64
    assert _native.form_bytes("q8", 64, 3) == 3 * (64 + 64)
    assert _native.packed_bytes("Q4_0", 17, 64) == 2 * (512 + 64)
    with pytest.raises(ValueError, match="in_features is 48, must be a multiple of 32"):
        _native.packed_bytes("Q4_0", 16, 48)
    with pytest.raises(ValueError, match="Q2_K"):
        _native.input_form("Q2_K")
    with pytest.raises(ValueError, match="form is 'f16'"):
        _native.form_bytes("f16", 1, 1)  # type: ignore[arg-type]


def test_a_matrix(threads: _native.Threads) -> None:
    weights = np.random.default_rng(0).standard_normal((50, 32)).astype(np.float32)
    segments = [("F32", stored("F32", weights[:20])), ("BF16", stored("BF16", weights[20:]))]
    matrix = _native.Matrix(threads, 32, segments, np.zeros(50, np.float32))
    assert (matrix.in_features, matrix.out_features, matrix.input_forms) == (32, 50, ["f32", "bf16"])
    packed = _native.packed_bytes("F32", 20, 32) + _native.packed_bytes("BF16", 30, 32)
    assert matrix.num_bytes == packed + 4 * 16 * 4
    assert np.array_equal(matrix.unpack(19), weights[19])
    assert np.array_equal(matrix.unpack(20), (weights[20].view(np.uint32) & 0xFFFF0000).view(np.float32))
    with pytest.raises(IndexError, match="row"):
        matrix.unpack(50)


@pytest.mark.parametrize(
    ("rows", "bias", "error"),
    [
        (np.zeros((4, 128), np.float32), None, TypeError),
        (np.zeros((4, 256), np.uint8)[:, ::2], None, TypeError),
        (np.zeros(512, np.uint8), None, TypeError),
        (np.zeros((4, 124), np.uint8), None, ValueError),
        (np.zeros((0, 128), np.uint8), None, ValueError),
        (np.zeros((4, 128), np.uint8), np.zeros(5, np.float32), ValueError),
        (np.zeros((4, 128), np.uint8), np.zeros(4, np.float64), TypeError),
    ],
)
def test_matrices_that_cannot_be(threads: _native.Threads, rows: Any, bias: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        _native.Matrix(threads, 32, [("F32", rows)], bias)


def test_caches_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="head_dim is 33"):
        _native.KVCache([(1, 33)], 4, 16)
    with pytest.raises(ValueError, match="block_size is 24"):
        _native.KVCache([(1, 32)], 4, 24)
    with pytest.raises(ValueError, match="kv_heads is 0"):
        _native.KVCache([(0, 32)], 4, 16)
    with pytest.raises(ValueError, match="format is 'int4', must be bf16 or int8"):
        _native.KVCache([(1, 32)], 4, 16, "int4")
    for head_dim in (0, 6, 516):
        with pytest.raises(ValueError, match=f"head_dim is {head_dim}, must be a multiple of 4, up to 512, in int8"):
            _native.KVCache([(1, head_dim)], 4, 16, "int8")
    with pytest.raises(MemoryError):
        _native.KVCache([(8, 128)] * 100, 1 << 30, 16)
    cache = _native.KVCache([(1, 32)], 4, 16)
    assert (cache.format, cache.num_bytes) == ("bf16", 2 * 4 * 16 * 32 * 2)
    assert _native.KVCache([(1, 32), (3, 512)], 4, 48, "int8").num_bytes == 2 * 4 * 48 * (34 + 3 * 514)
    for layer, block in [(1, 0), (0, 4)]:
        with pytest.raises(IndexError):
            cache.keys(layer, block)


@pytest.mark.parametrize(
    ("layers", "num_blocks", "block_size"),
    [
        ([(1, 1 << 60)], 1, 16),  # a head of a block: 2**64 elements
        ([(1 << 60, 2)], 1, 16),  # a block
        ([(1, 2)], 1 << 59, 16),  # a layer
        ([(1, 2)] * 2, 1 << 56, 64),  # the layers together: 2**64 bytes
    ],
)
def test_caches_of_sizes_that_no_number_holds(layers: list[tuple[int, int]], num_blocks: int, block_size: int) -> None:
    with pytest.raises(MemoryError):
        _native.KVCache(layers, num_blocks, block_size)


def test_tensors_that_cannot_be(threads: _native.Threads) -> None:
    program = SmallProgram(threads).native
    for forms in ({"f32": 1 << 24}, {"f32": 32}, {"f32": (1 << 24) - 64}):
        with pytest.raises(ValueError, match="tensor"):
            program.tensor(32, **forms)
    with pytest.raises(ValueError, match="multiple of 32"):
        program.tensor(33, q8=0)


def refused_commands() -> list[tuple[str, Callable[[SmallProgram, _native.Threads], None]]]:
    def narrow(p: SmallProgram) -> int:
        return p.tensor(30)

    return [
        ("add: widths differ", lambda p, _: p.native.add(p.tensor(32), narrow(p), narrow(p))),
        ("form f32", lambda p, _: p.native.add(p.tensor(32), p.tensor(32), p.tensor(32, "q8"))),
        ("gain", lambda p, _: p.native.rms_norm(p.tensor(32), p.tensor(32), np.ones(3, np.float32), 1e-5)),
        ("together", lambda p, _: p.native.rms_norm(p.tensor(32), p.tensor(32), np.ones(32, np.float32), 1.0, y=0)),
        ("inputs", lambda p, t: p.native.linear(p.tensor(32), narrow(p), float_matrix(t, EYE))),
        ("outputs", lambda p, t: p.native.linear(narrow(p), p.tensor(32), float_matrix(t, EYE))),
        ("two segments", lambda p, t: p.native.gated_linear(p.tensor(16), p.tensor(32), float_matrix(t, EYE), "silu")),
        ("activation", lambda p, _: p.native.activation(p.tensor(32), p.tensor(32), "relu")),
        ("selected rows", lambda p, t: p.native.logits_linear(p.tensor(32), float_matrix(t, EYE))),
        ("lacks a form", lambda p, _: p.native.select_rows(p.tensor(32, "q8"), p.tensor(32))),
        ("heads", lambda p, _: p.native.rope_and_store_kv(p.tensor(32), p.tensor(64), 0, 1)),
        ("num_heads", lambda p, _: p.native.paged_attention(p.tensor(32), p.tensor(32), 0, 0, 1.0)),
    ]


@pytest.mark.parametrize(("message", "record"), refused_commands(), ids=[name for name, _ in refused_commands()])
def test_commands_that_do_not_fit(
    threads: _native.Threads, message: str, record: Callable[[SmallProgram, _native.Threads], None]
) -> None:
    program = SmallProgram(threads)
    program.tensor(32)
    with pytest.raises(ValueError, match=message):
        record(program, threads)


def test_indices_that_were_not_given_out(threads: _native.Threads) -> None:
    program = SmallProgram(threads)
    x = program.tensor(32)
    with pytest.raises(IndexError, match="no tensor 7"):
        program.native.add(x, x, 7)
    with pytest.raises(IndexError, match="no rope 0"):
        program.native.rope_and_store_kv(x, program.tensor(96), 0, 1, 0)
    with pytest.raises(IndexError, match="no layer 3"):
        program.native.paged_attention(x, x, 3, 1, 1.0)


def int64(*values: int) -> Any:
    return np.array(values, np.int64)


def int32(*values: int) -> Any:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("input_ids", int64(0, 1, 32), IndexError),
        ("input_ids", int64(0, -1, 2), IndexError),
        ("input_ids", int32(0, 1, 2), TypeError),
        ("input_ids", int64(0, 0, 1, 0, 2, 0)[::2], TypeError),
        ("positions", int64(0, 1, -2), IndexError),
        ("positions", int64(0, 1, 32), IndexError),
        ("positions", int64(0, 1), ValueError),
        ("slot_mapping", int64(0, 1, NUM_BLOCKS * 16), IndexError),
        ("slot_mapping", int64(0, 1), ValueError),
        ("query_start_loc", int32(0, 3), ValueError),
        ("query_start_loc", int32(0, 4, 3), ValueError),
        ("query_start_loc", int32(0, 2, 2), ValueError),
        ("query_start_loc", int32(1, 2, 3), ValueError),
        ("seq_lens", int32(1, 1), ValueError),
        ("seq_lens", int32(2, 17), ValueError),
        ("seq_lens", int32(2, -(2**31)), ValueError),
        ("block_table", int32(NUM_BLOCKS, 0).reshape(2, 1), IndexError),
        ("block_table", int32(-1, 0).reshape(2, 1), IndexError),
        ("block_table", int32(0).reshape(1, 1), ValueError),
        ("logit_rows", int64(3), IndexError),
        ("logit_rows", int64(0, 1, 2, 0, 1, 2, 0, 1, 2), ValueError),
        ("new_blocks", int64(NUM_BLOCKS), IndexError),
    ],
)
def test_steps_that_would_leave_a_buffer(
    threads: _native.Threads, name: str, value: Any, error: type[Exception]
) -> None:
    program = SmallProgram(threads, max_tokens=8)
    x = program.input(threads, EYE)
    program.native.embed_positions(program.tensor(32), float_matrix(threads, EYE))
    program.run([(0, 2), (0, 1)])
    before = program.native.read(x, 3)
    with pytest.raises(error):
        program.run([(0, 2), (0, 1)], **{name: value})
    assert np.array_equal(program.native.read(x, 3), before)


def test_more_than_was_declared(threads: _native.Threads) -> None:
    program = SmallProgram(threads, max_tokens=8, max_seqs=2)
    program.input(threads, EYE)
    with pytest.raises(ValueError, match="9 tokens, at most 8"):
        program.native.run(**step([(0, 9)]))
    with pytest.raises(ValueError, match="3 requests, at most 2"):
        program.native.run(**step([(0, 1)] * 3))
