"""Weights on the GPU, as the kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pagoda.errors import InvariantError


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
    """A matrix kept quantized. format: one of `PACKED_FORMATS`, which says what the planes hold and how they are laid out.

    codes: the codes' plane (of the low bits). high: the plane of further bits, where codes have any.
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
    def planes(self) -> tuple[torch.Tensor, ...]:
        every = (self.codes, self.scales, self.high, self.mins, self.super_scales, self.super_mins)
        return tuple(plane for plane in every if plane is not None)

    @property
    def num_bytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes)


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
