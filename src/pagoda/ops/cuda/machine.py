"""Machine: what launching needs to know of the GPU, and the memory that kernels share."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from pagoda.planning.cuda_workspace import NUM_COUNTERS, SCRATCH_FLOATS

__all__ = ["NUM_COUNTERS", "SCRATCH_FLOATS", "Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """device: with its number format `dtype` of activations. multiprocessors: how many programs run at least at once.
    capability: (major, minor) of its compute capability.
    partials [SCRATCH_FLOATS] float32, counters [NUM_COUNTERS] int32: kernels run one after the other, so they share these;
    counters are zero between kernels.
    name: the device's, which tables of what was measured go by; "" where there is none.
    is_deterministic: each request's results are the same whatever else is in the step, by fixed tiles without splits.
    """

    device: torch.device
    dtype: torch.dtype
    multiprocessors: int
    capability: tuple[int, int]
    partials: torch.Tensor
    counters: torch.Tensor
    is_deterministic: bool = False
    name: str = ""

    @classmethod
    def of(cls, device: torch.device, dtype: torch.dtype, *, is_deterministic: bool = False) -> Machine:
        """Allocates the shared memory, and has torch multiply by cuBLASLt where it multiplies, for the whole process: on an
        H200, with the products of a 7B model, that took from 1% more to 16% less time than cuBLAS did at 32 and 64 rows.

        On a CPU, where Triton's interpreter runs, a small GPU is made believe.
        """
        multiprocessors, capability, name = 4, (9, 0), ""
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            multiprocessors, capability = properties.multi_processor_count, (properties.major, properties.minor)
            name = properties.name
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that this is experimental
                torch.backends.cuda.preferred_blas_library("cublaslt")
            # Where it splits a sum, its parts are added in float32, as everywhere here.
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        partials = torch.empty(SCRATCH_FLOATS, dtype=torch.float32, device=device)
        counters = torch.zeros(NUM_COUNTERS, dtype=torch.int32, device=device)
        return cls(device, dtype, multiprocessors, capability, partials, counters, is_deterministic, name)

    @property
    def has_e4m3(self) -> bool:
        """Whether it has instructions that convert fp8 (E4M3)."""
        return self.capability >= (8, 9)

    @property
    def num_bytes(self) -> int:
        return self.partials.nbytes + self.counters.nbytes
