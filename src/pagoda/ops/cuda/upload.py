"""From mapped files to the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class Uploader:
    """Copies host memory to `device`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def raw(self, data: npt.NDArray[Any]) -> torch.Tensor:
        """The array's bytes on the device, uint8 [number of bytes]. The array may be read-only, and let go of afterwards."""
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return torch.from_numpy(flat.copy()).to(self.device)
