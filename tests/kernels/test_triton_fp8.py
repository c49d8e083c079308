"""float8_e4m3fn in integer arithmetic is torch's conversion, but for what is beyond its range."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda.ops.cuda.fp8 import as_stored, to_stored
from tests.kernels.gpu import DEVICE


@triton.jit
def converted(x, out, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, to_stored(tl.load(x + at).to(tl.float32), out + at))


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=DEVICE)
    converted[(x.shape[0] // 4096,)](x, as_stored(out), SIZE=4096)
    return as_stored(out)


def test_every_number_of_16_bits() -> None:
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32, device=DEVICE).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        x = patterns.view(dtype).float()
        wanted = x.clamp(-448, 448).to(torch.float8_e4m3fn)

        got = bytes_of(x)

        assert torch.equal(got, as_stored(wanted))
        assert (got.view(torch.float8_e4m3fn).isnan() == x.isnan()).all()


def test_about_the_middle_between_neighbours() -> None:
    """Ties go to the even one; a little more or less goes to the nearer one."""
    every = torch.arange(127, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn).float()
    middles = (every[:-1] + every[1:]) / 2
    numbers = torch.cat([middles, torch.nextafter(middles, middles * 0), torch.nextafter(middles, middles * 2)])
    x = torch.zeros(4096, device=DEVICE)
    x[: 2 * len(numbers)] = torch.cat([numbers, -numbers])

    assert torch.equal(bytes_of(x), as_stored(x.to(torch.float8_e4m3fn)))
