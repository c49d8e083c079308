"""What tests of products share: their meaning in float64, with a bound of each output's error."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from pagoda.ops.cuda.epilogue import Epilogue
from pagoda.ops.cuda.machine import Machine

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def machine_for(dtype: torch.dtype, *, is_deterministic: bool = False) -> Machine:
    return Machine.of(DEVICE, dtype, is_deterministic=is_deterministic)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Fresh numbers each time, of a size that leaves float16's range to their products' sums."""
    generator = torch.Generator()
    generator.seed()
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def check_product(x: torch.Tensor, values: torch.Tensor, epilogue: Epilogue) -> None:
    """epilogue.out and what goes with it are the product of x and values with what the epilogue says, within the rounding of
    sums in float32 (relative to the sum of the terms' sizes) and of the outputs' format.
    """
    wide, sizes = x.double() @ values.double().t(), x.double().abs() @ values.double().abs().t()
    if epilogue.norm is not None:
        norm = epilogue.norm
        factors = torch.rsqrt(norm.sums.double().sum(-1, keepdim=True) / norm.size + norm.eps)
        wide, sizes = wide * factors, sizes * factors
    if epilogue.bias is not None:
        wide, sizes = wide + epilogue.bias.double(), sizes + epilogue.bias.double().abs()
    if epilogue.gate is not None:
        (left, right), (left_size, right_size) = wide.chunk(2, dim=-1), sizes.chunk(2, dim=-1)
        activated = F.silu(left) if epilogue.gate == "silu" else F.gelu(left, approximate="tanh")
        wide, sizes = activated * right, 2 * (left_size * right.abs() + left.abs() * right_size)
    if epilogue.residual is not None:
        wide = wide + epilogue.residual.stream.double()
        sizes = sizes + epilogue.residual.stream.double().abs()
    out = epilogue.out.double()
    assert ((out - wide).abs() <= 2e-6 * sizes + _unit(epilogue.out) * wide.abs() + 1e-7).all(), (
        (out - wide).abs().max()
    )
    if epilogue.residual is not None:
        residual = epilogue.residual
        scaled = out * residual.gain.double()
        assert ((residual.scaled.double() - scaled).abs() <= _unit(residual.scaled) * scaled.abs() + 1e-7).all()
        torch.testing.assert_close(residual.sums.double().sum(-1), out.square().sum(-1), rtol=1e-5, atol=0)


def _unit(tensor: torch.Tensor) -> float:
    """A rounding to the tensor's format, relative to the number: half a unit in the last place. Triton's interpreter cuts
    numbers off where it makes bfloat16 of them."""
    is_cut = tensor.dtype == torch.bfloat16 and not tensor.is_cuda
    return torch.finfo(tensor.dtype).eps * (1.01 if is_cut else 0.51)
