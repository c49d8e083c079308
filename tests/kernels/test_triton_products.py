"""Dense products against float64: each kernel with tails and splits, what may follow, and the choice between kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pagoda.ops.cuda.epilogue import DeferredNorm, Epilogue, Residual
from pagoda.ops.cuda.gemv import gemv
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.products import num_sums, product
from pagoda.ops.cuda.tiled import tiled
from pagoda.ops.cuda.tuning import Tiling, choose
from pagoda.ops.cuda.weights import CudaWeight, DenseMatrix
from pagoda.ops.interface import Activation
from pagoda.planning.cuda_workspace import most_sums
from tests.kernels.products import DEVICE, check_product, machine_for, random

F16, F32 = torch.float16, torch.float32


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("outputs", "inputs"), [(48, 80), (8, 1376), (13, 50)])
@pytest.mark.parametrize("dtype", [F32, F16, torch.bfloat16])
def test_gemv(dtype: torch.dtype, outputs: int, inputs: int, splits: int) -> None:
    machine = machine_for(dtype)
    x, values = random(1, inputs, dtype=dtype), random(outputs, inputs, dtype=dtype)
    epilogue = Epilogue(torch.full((1, outputs), float("nan"), dtype=dtype, device=DEVICE))
    gemv(x, values, epilogue, machine, Tiling("gemv", 1, 8, 32 if inputs < 100 else 512, splits))
    check_product(x, values, epilogue)
    assert not machine.counters.any()


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("rows", [2, 21])
@pytest.mark.parametrize(("outputs", "inputs"), [(48, 80), (8, 344), (33, 50)])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_tiles(dtype: torch.dtype, outputs: int, inputs: int, rows: int, splits: int) -> None:
    machine = machine_for(dtype)
    x, values = random(rows, inputs, dtype=dtype), random(outputs, inputs, dtype=dtype)
    epilogue = Epilogue(torch.full((rows, outputs), float("nan"), dtype=dtype, device=DEVICE))
    tiled(x, values, epilogue, machine, Tiling("tiled", 16, 32, 32 if inputs < 100 else 128, splits))
    check_product(x, values, epilogue)
    assert not machine.counters.any()


@pytest.mark.parametrize("gate", [None, "silu"])
@pytest.mark.parametrize(("outputs", "inputs"), [(48, 80), (24, 344), (24, 50)])
def test_tiles_by_descriptor(outputs: int, inputs: int, gate: Activation | None) -> None:
    """Rows of 50 do not begin at 16 bytes: these are loaded without one."""
    x, values = random(5, inputs, dtype=F16) / 4, random(outputs, inputs, dtype=F16)
    num_outputs = outputs if gate is None else outputs // 2
    epilogue = Epilogue(torch.full((5, num_outputs), float("nan"), dtype=F16, device=DEVICE), gate=gate)
    tiling = Tiling("tiled", 16, 16, 32, splits=2, by_descriptor=True)
    tiled(x, values, epilogue, machine_for(F16), tiling)
    check_product(x, values, epilogue)


def test_many_tiles_of_rows() -> None:
    """More than one group of them, the last not full."""
    x, values = random(16 * 17 + 3, 16, dtype=F16), random(40, 16, dtype=F16)
    epilogue = Epilogue(torch.empty(len(x), 40, dtype=F16, device=DEVICE))
    tiled(x, values, epilogue, machine_for(F16), Tiling("tiled", 16, 32, 16))
    check_product(x, values, epilogue)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("gate", ["silu", "gelu_tanh"])
def test_a_gate_with_norm_and_bias(gate: Activation, splits: int, rows: int) -> None:
    machine = machine_for(F16)
    x, values = random(rows, 80, dtype=F16) / 4, random(2 * 24, 80, dtype=F16) / 4
    norm = DeferredNorm(random(rows, 5).square(), 9, 1e-6)
    epilogue = Epilogue(torch.empty(rows, 24, dtype=F16, device=DEVICE), random(48), gate, None, norm)
    kernel, tiling = (
        (gemv, Tiling("gemv", 1, 8, 32, splits)) if rows == 1 else (tiled, Tiling("tiled", 16, 16, 32, splits))
    )
    kernel(x, values, epilogue, machine, tiling)
    check_product(x, values, epilogue)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("has_norm", [False, True])
def test_a_residual_stream_with_bias(has_norm: bool, splits: int, rows: int) -> None:
    machine = machine_for(F16)
    x, values = random(rows, 80, dtype=F16) / 4, random(24, 80, dtype=F16)
    norm = DeferredNorm(random(rows, 5).square(), 9, 1e-6) if has_norm else None
    kernel, tiling = (
        (gemv, Tiling("gemv", 1, 8, 32, splits)) if rows == 1 else (tiled, Tiling("tiled", 16, 16, 32, splits))
    )
    out, scaled = (torch.empty(rows, 24, dtype=F16, device=DEVICE) for _ in range(2))
    sums = torch.empty(rows, -(-24 // tiling.outputs), device=DEVICE)
    residual = Residual(random(rows, 24, dtype=F16), random(24), scaled, sums)
    epilogue = Epilogue(out, random(24), None, residual, norm)
    kernel(x, values, epilogue, machine, tiling)
    check_product(x, values, epilogue)


def weight_of(*values: torch.Tensor, bias: torch.Tensor | None = None) -> CudaWeight:
    return CudaWeight(matrices=tuple(map(DenseMatrix, values)), bias=bias)


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_a_layers_products_hand_the_norm_on(rows: int) -> None:
    """O with the stream's step, the gated product that finishes its norm, and down with the next step."""
    width, hidden, machine = 40, 56, machine_for(F16)
    attended, stream = random(rows, width, dtype=F16), random(rows, width, dtype=F16)
    o, gate_up, down = (
        random(width, width, dtype=F16) / 6,
        random(2 * hidden, width, dtype=F16),
        random(width, hidden, dtype=F16),
    )
    gain = random(width)
    sums = torch.full((rows, most_sums(width)), float("nan"), device=DEVICE)
    total, scaled, after, prepared = (torch.empty_like(stream) for _ in range(4))
    gated = torch.empty(rows, hidden, dtype=F16, device=DEVICE)

    product(attended, weight_of(o), total, machine, residual=Residual(stream, gain, scaled, sums))
    used = sums[:, : num_sums(weight_of(o), rows, machine)].clone()
    check_product(attended, o, Epilogue(total, residual=Residual(stream, gain, scaled, used)))

    norm = DeferredNorm(used, width, 1e-6)
    product(scaled, weight_of(gate_up), gated, machine, gate="silu", norm=norm)
    check_product(scaled, gate_up, Epilogue(gated, gate="silu", norm=norm))

    product(gated, weight_of(down), after, machine, residual=Residual(total, gain, prepared, sums))
    used = sums[:, : num_sums(weight_of(down), rows, machine)]
    check_product(gated, down, Epilogue(after, residual=Residual(total, gain, prepared, used)))


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_float32_outputs_of_several_matrices_with_a_bias(rows: int, dtype: torch.dtype) -> None:
    parts, bias = (random(30, 24, dtype=dtype), random(18, 24, dtype=dtype)), random(48)
    x, out = random(rows, 24, dtype=dtype), torch.empty(rows, 48, device=DEVICE)
    product(x, weight_of(*parts, bias=bias), out, machine_for(dtype))
    check_product(x, torch.cat(parts), Epilogue(out, bias))


def test_a_gate_after_the_library_takes_as_many_rows_as_there_is_room_for() -> None:
    machine = replace(machine_for(F32), partials=torch.empty(96 * 32, device=DEVICE))
    x, values, out = random(70, 24), random(96, 24), torch.empty(70, 48, device=DEVICE)
    assert choose((96, 24), 70, machine, is_gated=True, can_use_blas=True).kernel == "blas"
    product(x, weight_of(values), out, machine, gate="silu")
    check_product(x, values, Epilogue(out, gate="silu"))


@pytest.mark.parametrize(("dtype", "out_dtype", "step"), [(F16, F16, 1), (F16, F32, 9), (F32, F32, 9)])
def test_a_rows_result_does_not_depend_on_the_others(dtype: torch.dtype, out_dtype: torch.dtype, step: int) -> None:
    machine = machine_for(dtype, is_deterministic=True)
    x, weight = random(70, 200, dtype=dtype), weight_of(random(72, 200, dtype=dtype), bias=random(72))

    def of(rows: torch.Tensor) -> torch.Tensor:
        out = torch.empty(len(rows), 72, dtype=out_dtype, device=DEVICE)
        product(rows, weight, out, machine)
        return out

    together = of(x)
    for count in range(1, 70, step):
        assert torch.equal(of(x[:count]), together[:count])
    assert torch.equal(of(x.flip(0)), together.flip(0))


def test_the_narrowest_tile_is_what_sums_have_room_for() -> None:
    machine: Machine = machine_for(F16)
    for outputs in (8, 48, 4096, 5120):
        for rows in (1, 2, 16, 64, 300):
            matrix = DenseMatrix(torch.empty(outputs, 4096, dtype=F16, device="meta"))
            for multiprocessors in (4, 132):
                many = replace(machine, multiprocessors=multiprocessors)
                assert num_sums(CudaWeight(matrices=(matrix,)), rows, many) <= most_sums(outputs)
