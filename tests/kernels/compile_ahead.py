"""Has a kernel compiled ahead for a GPU that is not there; run by test_triton_compiling.py, for which it prints JSON."""

from __future__ import annotations

import json
from typing import Any

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from pagoda.ops.cuda.compiling import only_compiling
from pagoda.ops.cuda.feed import feed


class Utils:
    """loaded: names of kernels."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 227 << 10}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        self.loaded.append(name)
        return 1, 1, 32, 0, 1024


class Driver:
    """As much of a GPU's as compiling and loading need."""

    def __init__(self) -> None:
        self.utils = Utils()

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return None

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def main() -> None:
    compiled: list[str] = []

    def note(**told: Any) -> None:
        compiled.append(told["fn"].name)

    device = Driver()
    driver.set_active(device)
    knobs.runtime.jit_post_compile_hook = note
    ids, one = torch.full((3,), -1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    with only_compiling(2):
        for _ in range(2):
            feed(ids, one, one, chosen=one, vocab_size=50, block_table=torch.zeros(1, 1, dtype=torch.int32))
    print(json.dumps({"compiled": compiled, "loaded": device.utils.loaded, "ids": ids.tolist()}))


if __name__ == "__main__":
    main()
