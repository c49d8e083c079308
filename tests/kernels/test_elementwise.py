"""Each op of the reference against the naive one, on fresh random inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagoda.ops.reference import TorchOps
from pagoda.ops.reference_batch import torch_batch
from pagoda.ops.reference_cache import KVCache
from pagoda.ops.reference_weights import TorchWeight
from pagoda.runner.batch import Batch
from tests.kernels import naive

OPS = TorchOps(KVCache(16, (), ()))
# Of a result of ordinary size, from the number format's own precision.
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}
DTYPES = pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)


def tensor(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def exact(x: torch.Tensor) -> np.ndarray:
    return x.double().numpy()


def check(got: torch.Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    assert got.dtype == dtype
    np.testing.assert_allclose(exact(got), expected, rtol=BOUNDS[dtype], atol=BOUNDS[dtype])


def one_request(tokens: int, logit_rows: list[int]) -> Batch:
    return Batch(
        input_ids=np.arange(tokens)[::-1] % 7,
        positions=np.arange(tokens) + 3,
        slot_mapping=np.arange(tokens) + 3,
        query_start_loc=np.array([0, tokens], dtype=np.int32),
        seq_lens=np.array([tokens + 3], dtype=np.int32),
        block_table=np.array([[0]], dtype=np.int32),
        logit_rows=np.array(logit_rows, dtype=np.int64),
        new_blocks=np.zeros(0, dtype=np.int64),
    )


@DTYPES
def test_rms_norm(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    x, y, gain = tensor(rng, 5, 96, dtype=dtype) * 3, tensor(rng, 5, 96, dtype=dtype), tensor(rng, 96)

    check(OPS.rms_norm(x, TorchWeight(gain), 1e-5), naive.rms_norm(exact(x), exact(gain), 1e-5), dtype)
    total, normed = OPS.add_rms_norm(x, y, TorchWeight(gain), 1e-5)
    check(total, exact(x) + exact(y), dtype)
    check(normed, naive.rms_norm(exact(total), exact(gain), 1e-5), dtype)


def test_rms_norm_of_large_float16_values_does_not_overflow() -> None:
    x = torch.full((1, 64), 6e4, dtype=torch.float16)

    check(OPS.rms_norm(x, TorchWeight(torch.ones(64)), 1e-5), np.ones((1, 64)), torch.float16)


@DTYPES
def test_layer_norm(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(2)
    x, y = tensor(rng, 5, 96, dtype=dtype) + 2, tensor(rng, 5, 96, dtype=dtype)
    gain, bias = tensor(rng, 96), tensor(rng, 96)
    weights = (TorchWeight(gain), TorchWeight(bias))

    check(OPS.layer_norm(x, *weights, 1e-5), naive.layer_norm(exact(x), exact(gain), exact(bias), 1e-5), dtype)
    total, normed = OPS.add_layer_norm(x, y, *weights, 1e-5)
    check(total, exact(x) + exact(y), dtype)
    check(normed, naive.layer_norm(exact(total), exact(gain), exact(bias), 1e-5), dtype)


@DTYPES
def test_activations(dtype: torch.dtype) -> None:
    x = tensor(np.random.default_rng(3), 4, 64, dtype=dtype) * 2
    gate, up = exact(x)[:, :32], exact(x)[:, 32:]

    check(OPS.activation(x, "silu"), naive.silu(exact(x)), dtype)
    check(OPS.activation(x, "gelu_tanh"), naive.gelu_tanh(exact(x)), dtype)
    check(OPS.gated_activation(x, "silu"), naive.silu(gate) * up, dtype)
    check(OPS.gated_activation(x, "gelu_tanh"), naive.gelu_tanh(gate) * up, dtype)


def test_add() -> None:
    assert OPS.add(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -2.0])).tolist() == [4.0, 0.0]


def test_linear() -> None:
    rng = np.random.default_rng(4)
    x, matrix, bias = tensor(rng, 5, 48), tensor(rng, 40, 48), tensor(rng, 40)
    expected = exact(x) @ exact(matrix).T

    np.testing.assert_allclose(OPS.linear(x, TorchWeight(matrix)), expected, atol=1e-5)
    np.testing.assert_allclose(OPS.linear(x, TorchWeight(matrix, bias)), expected + exact(bias), atol=1e-5)


def test_embeddings_by_id_and_by_position() -> None:
    table = tensor(np.random.default_rng(5), 16, 8)
    batch = torch_batch(one_request(4, []), 16, torch.device("cpu"))

    assert torch.equal(OPS.embed(batch, TorchWeight(table)), table[[3, 2, 1, 0]])
    assert torch.equal(OPS.embed(batch, TorchWeight(table), 2.5), table[[3, 2, 1, 0]] * 2.5)
    assert torch.equal(OPS.embed_positions(batch, TorchWeight(table)), table[[3, 4, 5, 6]])


@pytest.mark.parametrize("rows", [[], [3], [0, 2]])
def test_logits_of_the_selected_rows_in_float32(rows: list[int]) -> None:
    rng = np.random.default_rng(6)
    x, head = tensor(rng, 4, 32, dtype=torch.bfloat16), tensor(rng, 20, 32, dtype=torch.bfloat16)
    logits = OPS.logits(torch_batch(one_request(4, rows), 16, torch.device("cpu")), x, TorchWeight(head))

    assert logits.dtype == torch.float32
    assert logits.shape == (len(rows), 20)
    np.testing.assert_allclose(logits, exact(x)[rows] @ exact(head).T, rtol=1e-2, atol=5e-2)
