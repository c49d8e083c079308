"""Which kernel multiplies, and in what tiles: measured for this GPU and shape where a table has it, else worked out.

Tables are `tuned/DEVICE.json` beside this file, DEVICE being the GPU's name with what is no letter or digit left out;
`python -m pagoda.ops.cuda.tune` measures one.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

import torch
import triton

from pagoda.ops.cuda.machine import Machine
from pagoda.planning.cuda_workspace import NARROWEST_TILE, NUM_COUNTERS, SCRATCH_FLOATS

# Up to so many rows a product takes as long as reading its weights takes; then tensor cores begin to be the limit.
SKINNY_ROWS = 64
# From this capability on GPUs have a unit that copies tiles.
HAS_DESCRIPTORS = (9, 0)
MOST_SPLITS = 4
STEPS_OF_A_SPLIT = 4
# Where tiles alone occupy every multiprocessor, what splits write and read of their parts is at most this share of the weights.
MOST_TRAFFIC = 0.06
# Bytes of shared memory a program may take, by capability ("CUDA C++ Programming Guide", technical specifications).
_SHARED_MEMORY = {(8, 0): 163 << 10, (8, 7): 163 << 10, (9, 0): 227 << 10, (10, 0): 227 << 10}
_SHARED_MEMORY_ELSEWHERE = 99 << 10


@dataclass(frozen=True, slots=True)
class Tiling:
    """rows, outputs: of a program's tile; one row in a `gemv`. inputs: that it takes at once. splits: programs that share a
    tile's inputs. All but these are powers of two. by_descriptor: `tiled` has the GPU's unit for it (TMA) fetch the weights,
    where their layout allows that. `blas` has no use for any of them."""

    kernel: Literal["gemv", "tiled", "blas"]
    rows: int = 1
    outputs: int = 1
    inputs: int = 1
    splits: int = 1
    num_warps: int = 4
    num_stages: int = 1
    by_descriptor: bool = False


def choose(
    shape: tuple[int, int], rows: int, machine: Machine, *, is_gated: bool = False, can_use_blas: bool = False
) -> Tiling:
    """For so many rows times a matrix [out, in], both halves of it for a gate. Depends on nothing else, so that a product's
    reader can tell in which tiles it was computed."""
    return _choose(
        shape,
        1 if rows == 1 else min(triton.next_power_of_2(rows), 2 * SKINNY_ROWS),
        machine.dtype,
        machine.name,
        machine.multiprocessors,
        machine.capability,
        machine.is_deterministic,
        is_gated,
        can_use_blas,
    )


@lru_cache(maxsize=4096)
def _choose(
    shape: tuple[int, int],
    rows: int,
    dtype: torch.dtype,
    name: str,
    multiprocessors: int,
    capability: tuple[int, int],
    is_deterministic: bool,
    is_gated: bool,
    can_use_blas: bool,
) -> Tiling:
    itemsize = dtype.itemsize
    if is_deterministic:
        return fixed_tiling(shape, itemsize, multiprocessors)
    for measured in table(name).get((*shape, rows, is_gated), ()) if itemsize == 2 else ():
        if can_use_blas or measured.kernel != "blas":
            return measured
    if rows == 1:
        return _gemv_tiling(shape, multiprocessors, is_gated)
    if rows <= SKINNY_ROWS:
        return _skinny_tiling(shape, rows, itemsize, multiprocessors, capability, is_gated)
    return Tiling("blas") if can_use_blas else fixed_tiling(shape, itemsize, multiprocessors, is_gated)


def fixed_tiling(shape: tuple[int, int], itemsize: int, multiprocessors: int, is_gated: bool = False) -> Tiling:
    """The same for any number of rows, without splits, so that a row's result is that of the row alone."""
    outputs = 128 if not is_gated and shape[0] >= 128 * multiprocessors else 64
    return Tiling("tiled", 64, outputs, 128 // itemsize, num_warps=4, num_stages=3)


def _gemv_tiling(shape: tuple[int, int], multiprocessors: int, is_gated: bool) -> Tiling:
    """Few outputs of long runs of inputs: on an H200 with a 7B model's shapes such tiles came nearest to the time that reading
    the weights takes. Each thread takes 16 bytes of each of a tile's outputs, so inputs go from memory to where they are
    multiplied; a run of 1024 is 4 warps'. Splits only where outputs are too few to keep memory busy.
    """
    num_outputs, halves = (shape[0] // 2, 2) if is_gated else (shape[0], 1)
    inputs = min(1024, max(16, triton.next_power_of_2(shape[1])))
    outputs = 4 // halves
    while num_outputs > 8 * multiprocessors * outputs and 2 * outputs * halves * inputs <= 8192:
        outputs *= 2
    tiles, steps = math.ceil(num_outputs / outputs), math.ceil(shape[1] / inputs)
    splits = max(1, min(4 * multiprocessors // tiles, steps, 2 * MOST_SPLITS))
    return Tiling("gemv", 1, outputs, inputs, splits, num_warps=min(4, max(1, inputs // 256)))


def _skinny_tiling(
    shape: tuple[int, int],
    rows: int,
    itemsize: int,
    multiprocessors: int,
    capability: tuple[int, int],
    is_gated: bool,
) -> Tiling:
    """64 outputs by 128 inputs, by descriptors, in 2 to 4 splits did best on an H200 with a 7B model's shapes at 2 to 16 rows.

    Narrower tiles where these would leave multiprocessors without work. Half of the shared memory holds three or four stages
    where it can, so that a multiprocessor has two programs.
    """
    num_outputs, halves = (shape[0] // 2, 2) if is_gated else (shape[0], 1)
    rows = max(16, rows)
    widest = 128 if rows < SKINNY_ROWS and not is_gated else 64
    inputs = min(widest * 2 // itemsize, max(16, triton.next_power_of_2(shape[1])))
    most_splits = max(1, min(MOST_SPLITS, math.ceil(shape[1] / inputs) // STEPS_OF_A_SPLIT))
    outputs = 64
    while outputs > 16 and math.ceil(num_outputs / outputs) * most_splits < multiprocessors * 3 // 4:
        outputs //= 2
    tiles = math.ceil(num_outputs / outputs)
    splits = max(1, min(4 * multiprocessors // tiles, most_splits))
    if tiles >= multiprocessors:
        # A split's part of a tile is written and read, 4 bytes a row and output; its weights are read, `itemsize` an input.
        splits = max(1, min(splits, int(MOST_TRAFFIC * shape[1] * itemsize / (8 * rows))))
    stage = (halves * outputs + rows) * inputs * itemsize
    shared = _SHARED_MEMORY.get(capability, _SHARED_MEMORY_ELSEWHERE)
    wanted = [stages for limit in (shared // 2, shared) for stages in (4, 3) if stages * stage <= limit]
    by_descriptor = capability >= HAS_DESCRIPTORS and rows == 16
    return Tiling("tiled", rows, outputs, inputs, splits, 4, wanted[0] if wanted else 2, by_descriptor)


def fits(tiling: Tiling, shape: tuple[int, int], rows: int, *, is_gated: bool) -> bool:
    """Whether the parts of split sums fit the memory that kernels share, and the tiles' sums of squares a residual stream's."""
    if not is_gated and tiling.outputs < NARROWEST_TILE:
        return False
    num_outputs, halves = (shape[0] // 2, 2) if is_gated else (shape[0], 1)
    tiles = math.ceil(num_outputs / tiling.outputs) * math.ceil(rows / tiling.rows)
    parts = tiles * halves * tiling.splits * tiling.rows * tiling.outputs
    return tiling.splits == 1 or (parts <= SCRATCH_FLOATS and tiles <= NUM_COUNTERS)


Key = tuple[int, int, int, bool]


@lru_cache(maxsize=8)
def table(name: str) -> dict[Key, tuple[Tiling, ...]]:
    """What was measured on the GPU of this name, the fastest first: by outputs, inputs, rows (a power of two, for what is above
    half of it too), and whether a gate follows. Of numbers of 16 bits. Empty for a GPU without a table."""
    file = resources.files(__package__) / "tuned" / f"{file_name(name)}.json"
    if not name or not file.is_file():
        return {}
    return parsed(json.loads(file.read_text("utf-8")))


def file_name(device_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", device_name)


def parsed(document: dict[str, Any]) -> dict[Key, tuple[Tiling, ...]]:
    """Of a table's document, as `tune` writes it."""
    return {
        (entry["outputs"], entry["inputs"], entry["rows"], entry["is_gated"]): tuple(
            Tiling(**tiling) for tiling in entry["tilings"]
        )
        for entry in document["products"]
    }
