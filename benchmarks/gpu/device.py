"""Where the engine runs: on the GPU, or where there is none in Triton's interpreter on the CPU."""

from __future__ import annotations

from typing import Any

import torch


def config_of_device() -> dict[str, Any]:
    if torch.cuda.is_available():
        return {"device": "cuda"}
    return {"device": "reference"}
