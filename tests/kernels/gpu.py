"""What tests of the GPU's kernels share. Without a GPU they run in Triton's interpreter."""

from __future__ import annotations

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


class Guarded:
    """A tensor to be written, NaN so far, with room around it that nobody may write. values: the tensor."""

    def __init__(self, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        size = torch.Size(shape).numel()
        self._whole = torch.full((size + 2 * self._ROOM,), float("nan"), dtype=dtype, device=DEVICE)
        self.values = self._whole[self._ROOM : self._ROOM + size].view(shape)

    def check(self) -> torch.Tensor:
        """The values, once all of them are written, and nothing around them."""
        assert self._whole[: self._ROOM].isnan().all()
        assert self._whole[self._ROOM + self.values.numel() :].isnan().all()
        assert not self.values.isnan().any()
        return self.values

    _ROOM = 4096


def assert_near(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Each element within 1e-5 of the range of what is wanted (float64), and one unit in the last place of its own format
    (not half of one: the interpreter cuts bfloat16 off instead of rounding it)."""
    wide = wanted.double()
    bound = torch.finfo(got.dtype).eps * wide.abs() + 1e-5 * wide.abs().max()
    error = (got.double() - wide).abs()
    assert (error <= bound).all(), f"{(error / bound).max():.3g} times the bound"
