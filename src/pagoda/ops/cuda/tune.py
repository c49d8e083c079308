"""Measures which kernel and tiles are the fastest for dense products on the GPU at hand, and writes `tuning`'s table.

    python -m pagoda.ops.cuda.tune [OUTPUTSxINPUTS | OUTPUTSxINPUTS:gated …] [--rows 1,4,16] --output FILE

OUTPUTS are the matrix's, with both halves of a gated one. Without shapes, those of LLaMA-7B are taken. The table is used when
it lies where `tuning.table` looks for it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from pagoda.ops.cuda.blas import can_use_blas
from pagoda.ops.cuda.dense_products import multiply
from pagoda.ops.cuda.epilogue import Epilogue
from pagoda.ops.cuda.machine import Machine
from pagoda.ops.cuda.tuning import HAS_DESCRIPTORS, Tiling, choose, fits

# Weights are taken in turn from so many bytes of them, so that none is still in a cache.
WEIGHT_BYTES = 512 << 20
REPEATS = 7
# Sums in another order, rounded to 16 bits, differ by less of the largest output; a wrong tile by more.
LARGEST_DIFFERENCE = 0.02
ROWS = (1, 2, 4, 8, 16, 32, 64)

Launch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A matrix [outputs, inputs]."""

    outputs: int
    inputs: int
    is_gated: bool = False

    @classmethod
    def parse(cls, text: str) -> Shape:
        sizes, _, gate = text.partition(":")
        outputs, _, inputs = sizes.partition("x")
        if gate not in ("", "gated") or not (outputs.isdecimal() and inputs.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not OUTPUTSxINPUTS or OUTPUTSxINPUTS:gated")
        return cls(int(outputs), int(inputs), gate == "gated")


LLAMA_7B = (
    Shape(12_288, 4096),
    Shape(4096, 4096),
    Shape(22_016, 4096, is_gated=True),
    Shape(4096, 11_008),
    Shape(32_000, 4096),
)


def measured(
    shapes: Sequence[Shape],
    rows: Sequence[int],
    machine: Machine,
    seconds: Callable[[Sequence[Launch]], float],
    weight_bytes: int = WEIGHT_BYTES,
) -> dict[str, Any]:
    """A table's document: of each shape and number of rows the fastest of our kernels' tiles and, where it can be used, the
    BLAS library, the faster first. Tiles that compute something wrong or do not fit the GPU are passed over.

    rows: powers of two. seconds: how long these launches take together; `graph_seconds` on a GPU.
    """
    return {
        "device": machine.name,
        "products": [
            _entry(shape, count, machine, seconds, weight_bytes) for shape, count in itertools.product(shapes, rows)
        ],
    }


def candidates(shape: Shape, rows: int, machine: Machine) -> Iterator[Tiling]:
    """What is tried: what would be chosen without a table, and others around what did well elsewhere."""
    worked_out = choose((shape.outputs, shape.inputs), rows, machine, is_gated=shape.is_gated)
    yield worked_out
    num_outputs = shape.outputs // (2 if shape.is_gated else 1)
    if rows == 1:
        tiles = [
            (2, 1024, 4),
            (2, 2048, 8),
            (4, 512, 2),
            (4, 1024, 4),
            (4, 2048, 8),
            (8, 512, 2),
            (8, 1024, 4),
            (16, 512, 4),
        ]
        others = [
            Tiling("gemv", 1, outputs, inputs, splits, num_warps=warps)
            for (outputs, inputs, warps), splits in itertools.product(tiles, (1, 2, 4))
        ]
    else:
        tiles = [(16, 256, 4), (32, 128, 4), (32, 256, 4), (64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 8)]
        descriptors = (False, True) if machine.capability >= HAS_DESCRIPTORS else (False,)
        others = [
            Tiling(
                "tiled",
                max(16, rows),
                outputs,
                inputs,
                splits,
                warps,
                4 if outputs * inputs <= 8192 else 3,
                by_descriptor,
            )
            for (outputs, inputs, warps), splits, by_descriptor in itertools.product(tiles, (1, 2, 4), descriptors)
        ]
    for tiling in others:
        is_split_well = tiling.splits * tiling.inputs <= shape.inputs
        is_useful = tiling.outputs <= num_outputs and (is_split_well or tiling.splits == 1)
        if (
            tiling != worked_out
            and is_useful
            and fits(tiling, (shape.outputs, shape.inputs), rows, is_gated=shape.is_gated)
        ):
            yield tiling


def graph_seconds(launches: Sequence[Launch]) -> float:
    """On the current GPU, all in one graph: the median of some replays."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    times: list[float] = []
    for _ in range(REPEATS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return statistics.median(times[1:])


def _entry(
    shape: Shape, rows: int, machine: Machine, seconds: Callable[[Sequence[Launch]], float], weight_bytes: int
) -> dict[str, Any]:
    dtype, device = machine.dtype, machine.device
    copies = max(1, math.ceil(weight_bytes / (shape.outputs * shape.inputs * dtype.itemsize)))
    weights = [torch.randn(shape.outputs, shape.inputs, device=device).to(dtype) for _ in range(copies)]
    x = (torch.randn(rows, shape.inputs, device=device) / math.sqrt(shape.inputs)).to(dtype)
    num_outputs = shape.outputs // (2 if shape.is_gated else 1)
    epilogue = Epilogue(
        torch.empty(rows, num_outputs, dtype=dtype, device=device), gate="silu" if shape.is_gated else None
    )
    wide = x.float() @ weights[0].float().t()
    if shape.is_gated:
        first, second = wide.chunk(2, dim=-1)
        wide = torch.nn.functional.silu(first) * second

    def time_of(tiling: Tiling) -> float:
        epilogue.out.fill_(math.nan)
        try:
            multiply(x, weights[0], epilogue, machine, tiling)
        except OutOfResources:
            return math.inf
        if not (epilogue.out.float() - wide).abs().max() <= LARGEST_DIFFERENCE * wide.abs().max():
            return math.inf
        launches = [lambda values=values: multiply(x, values, epilogue, machine, tiling) for values in weights]
        return seconds(launches) / copies

    ours = min((time_of(tiling), index, tiling) for index, tiling in enumerate(candidates(shape, rows, machine)))
    results = [(ours[0], ours[2])]
    if can_use_blas(x, epilogue):
        results.append((time_of(Tiling("blas")), Tiling("blas")))
    results = sorted((result for result in results if result[0] < math.inf), key=lambda result: result[0])
    return {
        "outputs": shape.outputs,
        "inputs": shape.inputs,
        "rows": rows,
        "is_gated": shape.is_gated,
        "tilings": [asdict(tiling) for _, tiling in results],
        "microseconds": [round(time * 1e6, 2) for time, _ in results],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shapes", nargs="*", type=Shape.parse, metavar="OUTPUTSxINPUTS[:gated]")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="powers of two, with commas between")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    rows = [int(number) for number in options.rows.split(",") if number.isdecimal() and int(number) in ROWS]
    if len(rows) != options.rows.count(",") + 1:
        parser.error(f"--rows is {options.rows!r}; each must be one of {', '.join(map(str, ROWS))}")
    if not torch.cuda.is_available():
        parser.error("there is no NVIDIA GPU, or torch was built without CUDA")
    machine = Machine.of(torch.device("cuda"), torch.bfloat16)
    with torch.inference_mode():
        document = measured(options.shapes or LLAMA_7B, rows, machine, graph_seconds)
    options.output.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
