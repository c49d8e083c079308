"""Which kernel and tiles are the fastest for each product: entries for this GPU's table in `pagoda/ops/cuda/tuned`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

import torch

from gpu.context import Context
from pagoda.ops.cuda.compiling import only_compiling
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.tune import Launch, Shape, graph_seconds, measured

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# So long before the end no more is begun.
ENTRY_SECONDS = 12.0


@torch.inference_mode()
def run(context: Context) -> None:
    """As many entries as there is time for, those first that weigh most: one row, then 16, and the largest matrices."""
    until = time.monotonic() + context.seconds
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    machine = Machine.of(DEVICE, dtype)
    products: list[Any] = []
    for rows, shapes in context.sizes.tuned:
        for shape in (Shape(*sizes) for sizes in shapes):
            if time.monotonic() + ENTRY_SECONDS > until:
                return
            products += _entry(shape, rows, machine)
            context.report(device=machine.name, products=products)


def _entry(shape: Shape, rows: int, machine: Machine) -> list[Any]:
    if DEVICE.type != "cuda":
        return list(measured([shape], [rows], machine, _host_seconds, weight_bytes=1)["products"])
    with only_compiling(os.cpu_count() or 1):  # all tiles at once, on one matrix, whose times are of no interest
        measured([shape], [rows], machine, lambda launches: math.inf, weight_bytes=1)
    return list(measured([shape], [rows], machine, graph_seconds)["products"])


def _host_seconds(launches: Sequence[Launch]) -> float:
    begun = time.perf_counter()
    for launch in launches:
        launch()
    return time.perf_counter() - begun
