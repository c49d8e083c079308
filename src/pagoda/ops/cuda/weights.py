"""Weights on the GPU, as the kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pagoda.errors import InvariantError

# Its bits: a code in the place of the fraction makes it that much larger.
FLOAT_OF_2_TO_23 = 0x4B000000


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """values [out, in], contiguous, in the activations' format."""

    values: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, num_columns = self.values.shape
        return num_rows, num_columns

    @property
    def num_bytes(self) -> int:
        return self.values.nbytes


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix kept quantized. format: one of `planning.cuda_formats.CUDA_FORMATS`, which says how the planes are laid out;
    `packed_tiles` says what they mean.

    codes: words of 4-bit codes, int32, or bytes, uint8 whatever they mean. high: the plane of further bits, if there are any.
    scales, mins: of groups of inputs; super_scales, super_mins: what sub-scales are multiplied by, where a format has two
    levels. None where the format has no such plane.
    """

    format: str
    shape: tuple[int, int]
    codes: torch.Tensor
    scales: torch.Tensor
    high: torch.Tensor | None = None
    mins: torch.Tensor | None = None
    super_scales: torch.Tensor | None = None
    super_mins: torch.Tensor | None = None

    @property
    def num_units(self) -> int:
        """Units of a row, as `packed_tiles` has them: four words, or 8 bytes."""
        return self.codes.shape[1] // (4 if self.codes.dtype == torch.int32 else 8)

    @property
    def planes(self) -> dict[str, torch.Tensor]:
        """Those that there are, by name."""
        return {name: plane for name, plane in self._every.items() if plane is not None}

    @property
    def num_bytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes.values())

    def arguments(self) -> dict[str, torch.Tensor | str | int | None]:
        """Keyword arguments of a kernel that reads it with `packed_tiles`."""
        planes = {f"{name}_ptr": plane for name, plane in self._every.items()}
        # Given when the kernel runs, as what is known when it is compiled is loaded again for every use.
        return {**planes, "exponent": FLOAT_OF_2_TO_23, "FORMAT": self.format}

    @property
    def _every(self) -> dict[str, torch.Tensor | None]:
        return {
            "codes": self.codes,
            "high": self.high,
            "scales": self.scales,
            "mins": self.mins,
            "super_scales": self.super_scales,
            "super_mins": self.super_mins,
        }


Matrix = DenseMatrix | PackedMatrix


@dataclass(frozen=True, slots=True)
class CudaWeight:
    """vector: a gain or bias [n], float32. Or matrices stacked along their outputs, neighbours of one format already joined;
    bias [sum of out], float32. segments: how many outputs each matrix that the model named has."""

    vector: torch.Tensor | None = None
    matrices: tuple[Matrix, ...] = ()
    bias: torch.Tensor | None = None
    segments: tuple[int, ...] = ()

    @property
    def values(self) -> torch.Tensor:
        """The vector."""
        if self.vector is None:
            raise InvariantError("a matrix stands where a vector is needed")
        return self.vector

    @property
    def out_features(self) -> int:
        return sum(matrix.shape[0] for matrix in self.matrices)

    @property
    def in_features(self) -> int:
        return self.matrices[0].shape[1]
