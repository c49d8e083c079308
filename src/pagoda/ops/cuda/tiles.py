"""Tiles: which rows and columns of a tensor one program of a kernel works on."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

# 16 bytes of a 2-byte format: what a thread loads or stores at once.
ELEMENTS_PER_THREAD = 8
# Of these many threads, a multiprocessor holds enough programs at once to keep the memory busy.
TILE_WARPS = 4
MOST_WARPS = 16
WARP = 32
TILE_ELEMENTS = TILE_WARPS * WARP * ELEMENTS_PER_THREAD


@dataclass(frozen=True, slots=True)
class Tile:
    """Powers of two: rows × columns elements, by num_warps × 32 threads."""

    rows: int
    columns: int
    num_warps: int

    def grid(self, num_rows: int, width: int) -> tuple[int, int]:
        """Programs that cover a tensor [num_rows, width]."""
        return -(-num_rows // self.rows), -(-width // self.columns)


def part_of_rows(width: int) -> Tile:
    """For kernels that take each element alone: part of a wide row, or several narrow ones."""
    columns = min(triton.next_power_of_2(width), TILE_ELEMENTS)
    return Tile(TILE_ELEMENTS // columns, columns, TILE_WARPS)


def whole_rows(width: int) -> Tile:
    """For kernels that reduce rows: one whole row, by more threads the wider it is, or several narrow ones."""
    columns = triton.next_power_of_2(width)
    rows = max(1, TILE_ELEMENTS // columns)
    return Tile(rows, columns, min(MOST_WARPS, rows * columns // (WARP * ELEMENTS_PER_THREAD)))


@triton.jit
def places(num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows [ROWS, 1] and columns [1, COLUMNS] of this program's tile, and which of its elements are inside the tensor.

    Rows are int64: an offset in a large step passes 2^31.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return rows.to(tl.int64), columns, (rows < num_rows) & (columns < width)
