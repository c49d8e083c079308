"""Where the engine runs: on the GPU, or where there is none its GPU path on the CPU, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from pagoda.runner import cuda_device, torch_runner

MADE_UP_BYTES = 1 << 30


def config_of_device() -> dict[str, Any]:
    """Settings of the engine. Without a GPU one is made believe; in float32, as the interpreter multiplies bf16 wrongly."""
    if torch.cuda.is_available():
        return {"device": "cuda"}
    cuda_device.find_gpu = lambda: cuda_device.Gpu("Triton's interpreter", (9, 0), MADE_UP_BYTES)
    return {"device": "cuda", "dtype": "float32"}


@contextmanager
def reference_on_gpu() -> Iterator[None]:
    """Device `reference` loaded within computes on the GPU too, if there is one: in the same plain torch, much sooner."""
    place = "cuda" if torch.cuda.is_available() else "cpu"

    def build(*arguments: Any, device: str, **named: Any) -> torch_runner.TorchRunner:
        return build_on(*arguments, device=place, **named)

    build_on = torch_runner.build_torch_runner
    with patch.object(torch_runner, "build_torch_runner", build):
        yield
