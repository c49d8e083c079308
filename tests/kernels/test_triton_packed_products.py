"""Products with quantized matrices against float64, in every format, for one row and for tiles of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from pagoda.ops.cuda.epilogue import DeferredNorm, Epilogue, Residual
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.packed_products import num_packed_tiles, num_splits, packed_product
from pagoda.ops.cuda.products import product
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix
from pagoda.ops.interface import Activation
from pagoda.planning.cuda_formats import CUDA_FORMATS
from pagoda.planning.cuda_workspace import most_sums
from tests.kernels.packed import random_matrix
from tests.parity.cuda import DEVICE


@pytest.fixture(scope="module", params=[False, True], ids=["", "deterministic"])
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine.of(DEVICE, torch.float32, is_deterministic=request.param)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def check(got: torch.Tensor, wanted: torch.Tensor, magnitude: torch.Tensor, bound: float) -> None:
    """magnitude: sums of the products' magnitudes, which rounding errors go with."""
    assert got.shape == wanted.shape
    assert ((got.double().cpu() - wanted).abs() <= bound * magnitude + 1e-30).all()


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("name", CUDA_FORMATS)
def test_every_format(name: str, num_rows: int, machine: Machine) -> None:
    width = 256 + (0 if CUDA_FORMATS[name].unit == 256 else 3 * CUDA_FORMATS[name].unit)
    matrix, numbers = random_matrix(name, 21, width, seed=num_rows)
    x, out = random(num_rows, width), torch.full((num_rows, 21), torch.nan, device=DEVICE)
    packed_product(x, matrix, Epilogue(out), machine)
    wide = x.cpu().double()
    check(out, wide @ numbers.double().T, wide.abs() @ numbers.double().abs().T, 1e-5)


@pytest.mark.parametrize("num_rows", [2, 17, 70])
@pytest.mark.parametrize("name", ["Q4_1", "Q8_0"])
def test_rows_in_tiles(name: str, num_rows: int) -> None:
    plain = Machine.of(DEVICE, torch.float16)
    matrix, numbers = random_matrix(name, 19, 96, seed=num_rows)
    x = random(num_rows, 96, dtype=torch.float16)
    out = torch.full((num_rows, 19), torch.nan, device=DEVICE)
    packed_product(x, matrix, Epilogue(out), plain)
    # A matrix product's numbers are rounded to the activations' format first.
    wide, rounded = x.cpu().double(), numbers.half().double()
    check(out, wide @ rounded.T, wide.abs() @ rounded.abs().T, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["Q5_K", "int4", "fp8_block"])
def test_one_row_is_multiplied_without_rounding_the_numbers(name: str, dtype: torch.dtype) -> None:
    plain = Machine.of(DEVICE, dtype)
    matrix, numbers = random_matrix(name, 9, 512, seed=7)
    x, out = random(1, 512, dtype=dtype), torch.empty(1, 9, device=DEVICE)
    packed_product(x, matrix, Epilogue(out), plain)
    wide = x.cpu().double()
    check(out, wide @ numbers.double().T, wide.abs() @ numbers.double().abs().T, 1e-5)


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "fp8"])
def test_e4m3_by_its_bits_and_others_on_older_gpus(name: str) -> None:
    older = replace(Machine.of(DEVICE, torch.float32), capability=(8, 0))
    matrix, numbers = random_matrix(name, 5, 256, seed=8)
    for num_rows in (1, 2):
        x, out = random(num_rows, 256), torch.empty(num_rows, 5, device=DEVICE)
        packed_product(x, matrix, Epilogue(out), older)
        wide = x.cpu().double()
        check(out, wide @ numbers.double().T, wide.abs() @ numbers.double().abs().T, 1e-5)


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("gate", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("name", ["Q4_0", "fp8"])
def test_deferred_norm_bias_and_gate(name: str, gate: Activation, num_rows: int, machine: Machine) -> None:
    matrix, numbers = random_matrix(name, 2 * 13, 96, seed=9)
    x, bias, sums = random(num_rows, 96), random(26, seed=1), random(num_rows, 5, seed=2).square()
    out = torch.empty(num_rows, 13, device=DEVICE)
    packed_product(x, matrix, Epilogue(out, bias, gate, norm=DeferredNorm(sums, 96, 1e-5)), machine)
    wide = x.cpu().double() @ numbers.double().T
    wide = wide * torch.rsqrt(sums.cpu().double().sum(1, keepdim=True) / 96 + 1e-5) + bias.cpu().double()
    first, second = wide.chunk(2, dim=1)
    activated = F.silu(first) if gate == "silu" else F.gelu(first, approximate="tanh")
    wanted = activated * second
    check(out, wanted, wanted.abs().max(), 1e-5)


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("name", ["Q5_1", "int8"])
def test_residual_stream_and_the_norm_after_it(name: str, num_rows: int, machine: Machine) -> None:
    matrix, numbers = random_matrix(name, 21, 64, seed=10)
    x, stream, gain = random(num_rows, 64), random(num_rows, 21, seed=1), random(21, seed=2)
    out, scaled = torch.empty(num_rows, 21, device=DEVICE), torch.empty(num_rows, 21, device=DEVICE)
    sums = torch.full((num_rows, most_sums(21)), torch.nan, device=DEVICE)
    packed_product(x, matrix, Epilogue(out, residual=Residual(stream, gain, scaled, sums)), machine)
    wanted = x.cpu().double() @ numbers.double().T + stream.cpu().double()
    check(out, wanted, wanted.abs().max(), 1e-5)
    check(scaled, wanted * gain.cpu().double(), wanted.abs().max(), 1e-5)
    squares = sums[:, : num_packed_tiles(matrix, num_rows, machine)].sum(1)
    check(squares, wanted.square().sum(1), wanted.square().sum(1), 1e-5)
    assert sums[:, num_packed_tiles(matrix, num_rows, machine) :].isnan().all()


@pytest.mark.parametrize("gate", [None, "silu"])
@pytest.mark.parametrize("name", ["Q4_0", "int8"])
def test_sums_that_several_programs_share(name: str, gate: Activation | None) -> None:
    plain = Machine.of(DEVICE, torch.float16)
    matrix, numbers = random_matrix(name, 20, 1376, seed=17)
    x, out = random(3, 1376, dtype=torch.float16), torch.empty(3, 10 if gate else 20, device=DEVICE)
    assert num_splits(3, 1, 1376 // (256 if name == "Q4_0" else 128), plain) > 1
    packed_product(x, matrix, Epilogue(out, gate=gate), plain)
    wide, rounded = x.cpu().double(), numbers.half().double()
    wanted = wide @ rounded.T
    if gate:
        first, second = wanted.chunk(2, dim=1)
        wanted = F.silu(first) * second
    check(out, wanted, wanted.abs().max(), 1e-5)
    assert not plain.counters.any()


@pytest.mark.parametrize("num_rows", [1, 2])
def test_matrices_of_several_formats_write_their_own_columns(num_rows: int, machine: Machine) -> None:
    first, first_numbers = random_matrix("Q4_K", 6, 256, seed=11)
    second, second_numbers = random_matrix("Q6_K", 5, 256, seed=12)
    dense = DenseMatrix(random(7, 256, seed=13))
    bias, x = random(18, seed=14), random(num_rows, 256, seed=15)
    out = torch.empty(num_rows, 18, device=DEVICE)
    product(x, CudaWeight(matrices=(first, dense, second), bias=bias), out, machine)
    numbers = torch.cat([first_numbers, dense.values.cpu(), second_numbers]).double()
    wide = x.cpu().double()
    check(out, wide @ numbers.T + bias.cpu().double(), wide.abs() @ numbers.abs().T + 1, 1e-5)


@pytest.mark.parametrize("name", ["Q4_0", "fp8_block"])
def test_a_deterministic_row_does_not_depend_on_its_neighbours(name: str) -> None:
    fixed = Machine.of(DEVICE, torch.float16, is_deterministic=True)
    matrix, _ = random_matrix(name, 40, 160, seed=16)
    x = random(5, 160, dtype=torch.float16)
    together = torch.empty(5, 40, device=DEVICE)
    packed_product(x, matrix, Epilogue(together), fixed)
    for row in (0, 4):
        alone = torch.empty(1, 40, device=DEVICE)
        packed_product(x[row : row + 1], matrix, Epilogue(alone), fixed)
        assert torch.equal(alone[0], together[row])
